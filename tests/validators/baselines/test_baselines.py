"""Baselines are right under every law, named by their operators, and written like any candidate."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from kb.validators import baselines, operators
from kb.validators.baselines import Baseline
from kb.validators.operators.spec import Workload, generator
from kb.validators.runtime.compare import compare_call

EVERY = [one for name in operators.VALUES for one in baselines.baselines(name)]
HERE = [one for one in EVERY if not one.needs_cuda and not one.packages and not one.name.endswith("_compiled")]


def label(one: Baseline) -> str:
    return f"{one.operator}/{one.name}"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_of(one: Baseline) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(one.source, label(one), "exec"), space)  # noqa: S102 - our own files
    run: Callable[..., Any] = space["run"]
    return run


def awkward(one: Baseline) -> Iterator[Workload]:
    for workload in operators.load(one.operator).workloads:
        if workload.use == "awkward" and one.takes(workload.axes, workload.dtype, law=workload.law):
            yield workload


@pytest.mark.parametrize("one", HERE, ids=label)
def test_a_baseline_passes_under_every_law_and_dtype(one: Baseline) -> None:
    spec = operators.load(one.operator)
    run = run_of(one)
    judged = 0
    for workload in awkward(one):
        arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(7))
        found = compare_call(spec, arguments, run(*arguments), dtype=workload.dtype, law=workload.law)
        assert [each.verdict for each in found] == ["passed"] * len(found), (workload, found)
        judged += 1
    assert judged


@pytest.mark.parametrize("name", operators.VALUES)
def test_an_operator_names_exactly_its_files(name: str) -> None:
    assert sorted(operators.load(name).baselines) == list(baselines.names(name))
    assert baselines.names(name)


@pytest.mark.parametrize("name", operators.VALUES)
def test_every_target_workload_has_a_baseline(name: str) -> None:
    for workload in operators.load(name).workloads:
        able = [one for one in baselines.baselines(name) if one.takes(workload.axes, workload.dtype, law=workload.law)]
        assert able, workload


@pytest.mark.parametrize("one", [one for one in EVERY if not one.packages], ids=label)
def test_a_baseline_has_the_signature_of_its_operator(one: Baseline) -> None:
    if one.name.endswith("_compiled"):
        plain = baselines.find(one.operator, one.name.removesuffix("_compiled"))
        assert one.source.startswith(plain.source)
        assert one.describe == f"torch.compile of {plain.describe}"
        return
    wanted = operators.load(one.operator).signature
    tree = ast.parse(f"def {wanted}: ...").body[0]
    assert isinstance(tree, ast.FunctionDef)
    space: dict[str, Any] = {}
    exec(f"def {wanted}: ...", space)  # noqa: S102 - our own text
    expected = {name: given.default for name, given in signature(space[one.operator]).parameters.items()}
    assert {name: given.default for name, given in signature(run_of(one)).parameters.items()} == expected


def test_a_folder_without_an_operator_would_be_noticed() -> None:
    folders = {path.name for path in Path(baselines.__file__).parent.iterdir() if any(path.glob("*.py"))}
    assert folders <= set(operators.NAMES)


def test_the_first_word_of_a_description_is_the_package_whose_version_counts() -> None:
    words = {one.describe.split(".", 1)[0].split(" ", 1)[0] for one in EVERY}
    assert words <= {"torch", "torchvision"}


def test_what_a_baseline_takes_is_told_without_importing_it() -> None:
    fast = baselines.find("gemm_fp8", "scaled_mm_fast")
    assert fast.needs_cuda
    assert fast.takes({"m": 8, "n": 32, "k": 64}, "bfloat16")
    assert not fast.takes({"m": 8, "n": 33, "k": 64}, "bfloat16")
    grouped = baselines.find("grouped_gemm", "grouped_mm")
    assert not grouped.takes({"num_tokens_expanded": 8, "num_experts": 2, "n": 8, "k": 8}, "float32")
    assert not baselines.find("nms", "matrix_fixed_point").capture


def test_an_unknown_baseline_is_no_baseline() -> None:
    with pytest.raises(KeyError, match="no_such"):
        baselines.source("rmsnorm", "no_such")
    assert baselines.names("no_such_operator") == ()


def test_a_compiled_baseline_gives_the_same_values() -> None:
    """In a process of its own: compiling changes process-wide settings, and warns of what it finds."""
    code = (
        "import torch; from kb.validators import baselines\n"
        "space = {}\n"
        "exec(compile(baselines.source('l2norm', 'rsqrt_of_sum_compiled'), 'c', 'exec'), space)\n"
        "x = torch.randn(3, 2, 8)\n"
        "torch.testing.assert_close(space['run'](x, 1e-6), torch.nn.functional.normalize(x, dim=-1))\n"
        "torch.testing.assert_close(space['run'](x[:2], 1e-6), torch.nn.functional.normalize(x[:2], dim=-1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "No working C++ compiler" in done.stderr or "InvalidCxxCompiler" in done.stderr:
        pytest.skip("no C++ compiler here: inductor cannot work")
    assert done.returncode == 0, done.stderr
