"""Every operator's bound lets honest arithmetic through and refuses every cheap way to an answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Buffer, Cost, ErrorModel, Operator, Workload
from tests.validators.operators import cheap


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", operators.VALUES)
def test_the_bound_lies_between_honest_and_cheap_work(name: str) -> None:
    found = cheap.margin(name, seeds=(1, 2))
    assert found.honest < 1.0
    assert {"zeros", "constant", "scaled"} <= {cheat.partition(",")[0] for cheat in found.cheap}
    assert {cheat: error for cheat, error in found.cheap.items() if error <= 1.0} == {}
    value, _ = found.smallest()
    assert value > 1.5, "the cheapest cheat is too close to the bound"


@pytest.mark.parametrize("name", operators.VALUES)
def test_bounds_are_finite_and_every_dtype_is_asked_for(name: str) -> None:
    spec = operators.load(name)
    seen = set()
    for case in cheap.cases(name, seed=1):
        seen.add(case.workload.dtype)
        for scale in case.scales:
            if scale is not None:
                assert bool(((scale >= 0) | scale.isnan()).all())
    assert seen == set(spec.dtypes)


def trivial(value: float) -> Operator:
    """Return an operator whose answer does not depend on its input."""

    def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.full_like(x, value, dtype=torch.float64),)

    return Operator(
        name="trivial", summary="a constant in disguise", signature="trivial(x)", axes=("n",),
        inputs=(Buffer("x", ("n",)),), outputs=(Buffer("y", ("n",)),), dtypes=("float32",), reference=reference,
        condition=None, error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
        cost=lambda _axes, _dtype: Cost(flops=1, essential_bytes=1),
        laws={"normal": lambda axes, _, generator: (torch.randn(axes["n"], generator=generator),)},
        workloads=(Workload({"n": 64}, "float32"),),
    )  # fmt: skip


@pytest.mark.parametrize(("value", "cheat"), [(0.0, "zeros, float32"), (3.0, "constant, float32")])
def test_a_trivial_task_is_not_admitted(value: float, cheat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "load", lambda _: trivial(value))
    assert cheap.margin("trivial", seeds=(1,)).cheap[cheat] <= 1.0


def test_a_bound_loose_enough_for_lower_precision_is_not_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = operators.load("gemm")
    loose = Operator(**{**vars(spec), "error": ErrorModel(accumulate="float32", c_acc=1e6, c_out=1e6)})
    monkeypatch.setattr(operators, "load", lambda _: loose)
    assert cheap.margin("gemm", seeds=(1,)).smallest()[0] <= 1.0


def test_the_table_names_every_operator() -> None:
    text = Path(__file__).parents[3].joinpath("docs", "operators.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert tuple(rows) == operators.VALUES
