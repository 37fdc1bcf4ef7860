"""Our own kernels go out as FlashInfer Trace: what the definitions state, and what their programs compute."""

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kb.config import find_root
from kb.errors import SourceFormatError
from kb.importers.flashinfer_schema import LOADER_DTYPES, definition_fault, runs
from kb.service import exporting, importing
from kb.service.flashinfer_kernels import definition_of
from kb.service.initialising import init
from kb.store import files, layout
from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload, generator

ROOT = Path(__file__).parents[2]


def _smallest(operator: Operator) -> Workload:
    known = [one for one in operator.workloads if one.dtype in LOADER_DTYPES and all(one.axes.values())]
    return min(known, key=lambda one: math.prod(one.axes.values()))


def _bits(value: object) -> object:
    return value.view(torch.int8) if isinstance(value, torch.Tensor) and value.dtype == torch.uint8 else value


def _comparable(value: torch.Tensor) -> torch.Tensor:
    return value.view(torch.uint8) if value.dtype.itemsize == 1 else value.nan_to_num()


@pytest.mark.parametrize("name", operators.VALUES)
def test_the_program_of_a_definition_needs_torch_alone_and_computes_what_the_judge_computes(name: str) -> None:
    operator = operators.load(name)
    case = _smallest(operator)
    body = definition_of(operator, case.dtype)
    assert definition_fault(body) is None
    assert runs(body["reference"])
    assert "kb." not in "".join(line for line in body["reference"].splitlines() if "import" in line)
    scope: dict[str, Any] = {}
    exec(body["reference"], scope)  # noqa: S102 - our own text
    arguments = operator.laws[case.law](case.axes, case.dtype, generator(1))
    made = scope["run"](*map(_bits, arguments))
    wanted = operator.reference(*arguments)
    results = made if isinstance(made, tuple) else (made,)
    for value, expected, output in zip(results, wanted, operator.outputs, strict=True):
        real = case.dtype if output.dtype == "data" else output.dtype
        rounded = _bits(expected.to(getattr(torch, real)))
        assert isinstance(rounded, torch.Tensor)
        assert (value.dtype, value.shape) == (rounded.dtype, rounded.shape)
        assert torch.equal(_comparable(value), _comparable(rounded))


def test_sizes_that_follow_from_others_are_axes_with_a_constraint_and_bytes_travel_as_int8() -> None:
    body = definition_of(operators.load("gemm_nvfp4"), "bfloat16")
    assert body["inputs"]["weight_packed"]["shape"] == ["n", "k_by_2"]
    assert "k_by_2 == k // 2" in body["constraints"]
    assert body["inputs"]["weight_packed"]["dtype"] == "int8"
    assert body["axes"]["size_1"] == {"type": "const", "value": 1}
    for name in operators.VALUES:
        for one in definition_of(operators.load(name), operators.load(name).dtypes[-1]).get("constraints", ()):
            ast.parse(one, mode="eval")


def test_kernels_of_the_starter_entries_go_out_and_come_in_again(tmp_path: Path) -> None:
    ids = [one for one in layout.entry_ids(ROOT / "entries") if one.split("/")[1] in ("rmsnorm", "gemm_nvfp4")]
    made = exporting.export(find_root(str(ROOT)), "flashinfer-trace", ids, tmp_path / "out")
    measured = [one for one in made.files if one.startswith("traces/")]
    assert {one.split("/")[0] for one in set(made.files) - set(measured)} == {"definitions", "solutions", "workloads"}
    assert measured, "there are records of an H200"
    names = [json.loads((tmp_path / "out" / one).read_text())["name"] for one in made.files if one.endswith(".json")]
    assert len(set(names)) == len(names)
    solution = json.loads(next((tmp_path / "out/solutions/gemm-nvfp4").glob("*.json")).read_text())
    assert solution["spec"]["entry_point"] == "kb_entry.py::run"
    assert "SPDX-License-Identifier: Apache-2.0" in solution["description"]
    assert {one["path"] for one in solution["sources"]} == {"kernel.py", "kb_entry.py"}
    found: list[dict[str, str]] = []
    for home, source in (("one", tmp_path / "out"), ("two", tmp_path / "again")):
        init(tmp_path / home)
        root = find_root(str(tmp_path / home))
        options = importing.options_of(
            format_=None, write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
        )
        importing.run(root, str(source), options)
        found.append(
            {one: files.read(layout.folder_of(root.entries, one), one).digest for one in layout.entry_ids(root.entries)}
        )
        if home == "one":
            exporting.export(root, "flashinfer-trace", [], tmp_path / "again")
    assert len(found[0]) == len(made.files)
    assert sorted(found[0].values()) == sorted(found[1].values())


def test_what_computes_no_values_is_left_out_with_the_reason(tmp_path: Path) -> None:
    name = next(one for one in layout.entry_ids(ROOT / "entries") if one.startswith("allocation/"))
    made = exporting.export(
        find_root(str(ROOT)), "flashinfer-trace", [name, "kernel/rmsnorm/row-per-cta"], tmp_path / "out"
    )
    assert [one.path for one in made.left_out] == [name]
    with pytest.raises(SourceFormatError, match=f"nothing can be written as flashinfer-trace: {name}: "):
        exporting.export(find_root(str(ROOT)), "flashinfer-trace", [name], tmp_path / "none")


def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "windows_fault", lambda path: "no name" if path.endswith(".jsonl") else None)
    with pytest.raises(Exception, match="no name"):
        exporting.export(find_root(str(ROOT)), "flashinfer-trace", ["kernel/rmsnorm/row-per-cta"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
