"""Every kernel entry computes what its operator says, at awkward shapes, on the CPU."""

import importlib.util
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Workload, generator
from kb.validators.runtime.compare import compare_call

ENTRIES = Path(__file__).resolve().parents[2] / "entries"


def kernel_folders() -> Iterator[Path]:
    """Yield the folder of every kernel entry that runs on a CPU through the interpreter."""
    for file in sorted((ENTRIES / "kernel").glob("*/*/entry.toml")):
        facts = tomllib.loads(file.read_text(encoding="utf-8"))
        if facts["language"] in ("triton", "torch") and "cpu" not in facts.get("cannot_run_on", {}):
            yield file.parent


def load_run(folder: Path) -> Callable[..., object]:
    """Import the entry point of a kernel folder under a private name."""
    facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
    file, function = facts["entry_point"].split(":")
    name = "kernel_under_test_" + "_".join(folder.parts[-2:]).replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, folder / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Callable[..., object] = getattr(module, function)
    return run


def cases() -> Iterator[tuple[Path, Workload]]:
    """Yield (folder, workload) for all awkward workloads that the entry's dtypes and limits admit."""
    for folder in kernel_folders():
        facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
        for workload in operators.load(facts["operator"]).workloads:
            if workload.use == "awkward" and workload.dtype in facts["dtypes"] and admits(facts, workload):
                yield folder, workload


def admits(facts: dict[str, dict[str, dict[str, object]]], workload: Workload) -> bool:
    """Tell whether the entry's limits hold at the workload's axes."""
    for axis, rule in facts.get("limits", {}).items():
        size = workload.axes.get(axis)
        if size is None:
            continue
        if size > int(str(rule.get("max", size))) or size < int(str(rule.get("min", size))):
            return False
        if size % int(str(rule.get("multiple_of", 1))) or size not in (rule.get("in") or [size]):  # type: ignore[operator]
            return False
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy reports what a device does silently
@pytest.mark.parametrize(
    ("folder", "workload"),
    [pytest.param(f, w, id=f"{f.parts[-2]}/{f.name}-{i}") for i, (f, w) in enumerate(cases())],
)
def test_matches_the_float64_reference(folder: Path, workload: Workload) -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"
    spec = operators.load(folder.parts[-2])
    run = load_run(folder)
    for seed in (1, 2):
        arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(seed))
        before = [a.clone() for a in arguments if isinstance(a, torch.Tensor)]
        results = compare_call(spec, arguments, run(*arguments), dtype=workload.dtype, law=workload.law)
        after = [a for a in arguments if isinstance(a, torch.Tensor)]
        assert [r.verdict for r in results] == ["passed"] * len(results), results
        for one, other in zip(before, after, strict=True):
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), "an input was changed"
