"""Specs of communication: inputs differ by rank, bounds lie between honest and cheap work, traffic is a lower bound."""

from collections.abc import Iterator
from typing import cast

import pytest
import torch

from kb.validators import operators
from kb.validators.operators import ranks
from kb.validators.operators.spec import DTYPES, Arguments, Operator, Workload, generator
from kb.validators.runtime.compare import compare_output

NAMES = operators.COMM
SUMS = ("all_reduce", "all_reduce_rmsnorm", "reduce_scatter")
LOWER = {"float32": torch.bfloat16, "float16": torch.float8_e4m3fn, "bfloat16": torch.float8_e4m3fn}
"""A format that a cheat sends in, narrower than the data's."""

Ranks = tuple[tuple[object, ...], ...]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def awkward(name: str) -> list[Workload]:
    return [one for one in operators.load(name).workloads if one.use == "awkward"]


def drawn(spec: Operator, workload: Workload, seed: int) -> Ranks:
    return cast(Ranks, spec.laws[workload.law](workload.axes, workload.dtype, generator(seed)))


def error(spec: Operator, workload: Workload, given: Ranks, made: tuple[torch.Tensor, ...]) -> float:
    """Return the worst error over its bound, over all ranks; infinite where values cannot be compared."""
    assert spec.condition is not None
    worst = 0.0
    expected, scales = spec.reference(*given), spec.condition(*given)
    for place, (got, want, scale) in enumerate(zip(made, expected, scales, strict=True)):
        found = compare_output(
            got.to(DTYPES[workload.dtype]), want, buffer=spec.outputs[place % len(spec.outputs)], dtype=workload.dtype,
            error=spec.error_under(workload.law), scale=scale,
        )  # fmt: skip
        worst = max(worst, float("inf") if found.max_normalised is None else found.max_normalised)
    return worst


def with_first(given: Ranks, change: object) -> Ranks:
    """Change the first tensor of every rank."""
    assert callable(change)
    return tuple((change(one[0], rank), *one[1:]) for rank, one in enumerate(given))


def as_rank_0(x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return the rows of rank 0 in place of a rank's own, as many as it has."""
    return first[: len(x)] if len(first) >= len(x) else x


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_is_complete(name: str) -> None:
    spec = operators.load(name)
    assert (spec.family, spec.wire is not None, spec.axes[0]) == ("comm", True, "world_size")
    assert {one.law for one in awkward(name)} == set(spec.laws)
    assert {one.dtype for one in awkward(name)} == set(spec.dtypes)
    assert {one.axes["world_size"] for one in awkward(name)} == {2, 3, 4}
    assert any(one.axes["num_tokens"] == 0 for one in awkward(name))
    assert any(one.axes["num_tokens"] % one.axes["world_size"] for one in awkward(name))
    assert all(set(one.axes) == set(spec.axes) for one in spec.workloads)
    assert spec.baselines
    assert spec.source
    for one in spec.workloads:
        if one.use == "target":
            assert one.note
            assert spec.cost(one.axes, one.dtype).essential_bytes > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_law_draws_by_the_seed_and_every_rank_gets_its_own(name: str) -> None:
    spec = operators.load(name)
    for workload in awkward(name):
        first, again, other = (drawn(spec, workload, seed) for seed in (1, 1, 2))
        assert len(first) == workload.axes["world_size"]
        for one, same in zip(first, again, strict=True):
            for value, repeated in zip(one, same, strict=True):
                if isinstance(value, torch.Tensor) and isinstance(repeated, torch.Tensor):
                    assert torch.equal(value.nan_to_num(7), repeated.nan_to_num(7))
        tensors = [cast(torch.Tensor, one[0]) for one in first]
        if all(one.numel() > 4 for one in tensors):
            assert all(not torch.equal(one, two) for at, one in enumerate(tensors) for two in tensors[at + 1 :]), (
                workload
            )
            assert not torch.equal(tensors[0], cast(torch.Tensor, other[0][0]))


@pytest.mark.parametrize("name", NAMES)
def test_results_rounded_once_pass_and_cheap_ones_do_not(name: str) -> None:
    spec = operators.load(name)
    shown: dict[str, float] = {}
    for workload in awkward(name):
        given = drawn(spec, workload, 3)
        expected = spec.reference(*given)
        if not any(one.numel() for one in expected):
            continue
        assert error(spec, workload, given, expected) <= 1.0
        first = cast(torch.Tensor, given[0][0])
        cheap = {
            "zeros": tuple(torch.zeros_like(one) for one in expected),
            "scaled": tuple(one * 1.05 for one in expected),
            "last rank at home": spec.reference(
                *with_first(given, lambda x, rank: torch.zeros_like(x) if rank == len(given) - 1 else x)  # noqa: B023
            ),
            "every rank as rank 0": spec.reference(*with_first(given, lambda x, _: as_rank_0(x, first))),  # noqa: B023
            "sent lower": spec.reference(*with_first(given, lambda x, _: x.to(LOWER[workload.dtype]).to(x.dtype))),  # noqa: B023
        }
        for cheat, made in cheap.items():
            key = f"{cheat}, {workload.dtype}"
            shown[key] = max(shown.get(key, 0.0), error(spec, workload, given, made))
    assert len(shown) == 15
    assert {cheat: worst for cheat, worst in shown.items() if worst <= 1.5} == {}


@pytest.mark.parametrize("name", SUMS)
def test_partial_sums_may_travel_in_the_dtype_of_the_data_in_any_order(name: str) -> None:
    spec = operators.load(name)
    for workload in awkward(name):
        given = drawn(spec, workload, 4)
        dtype = DTYPES[workload.dtype]
        for order in (range(len(given)), reversed(range(len(given)))):
            total: torch.Tensor | None = None
            for rank in order:
                x = cast(torch.Tensor, given[rank][0]).float()
                total = x if total is None else (total + x).to(dtype).float()
            assert total is not None
            # One rank holds the sum, the others nothing: the same answer by a reference that cannot round.
            alone = with_first(given, lambda x, rank: total if rank == 0 else torch.zeros_like(x))  # noqa: B023
            assert error(spec, workload, given, spec.reference(*alone)) <= 1.0, workload


def test_whole_numbers_leave_no_room() -> None:
    for name in ("all_reduce", "reduce_scatter"):
        spec = operators.load(name)
        for workload in (one for one in awkward(name) if one.law == "integers"):
            given = drawn(spec, workload, 6)
            expected = spec.reference(*given)
            assert error(spec, workload, given, expected) == 0.0
            off = tuple(one + 1 for one in expected)
            assert error(spec, workload, given, off) > 1.0


def test_a_rounded_scheme_has_a_bound_and_the_next_lower_format_breaks_it() -> None:
    spec = operators.load("all_reduce")
    assert spec.lossy is not None
    assert spec.condition is not None
    workload = Workload({"world_size": 4, "num_tokens": 16, "hidden_size": 512}, "float32")
    given = drawn(spec, workload, 8)
    expected = spec.reference(*given)[0]
    slack = spec.lossy(2.0**-4, *given)[0]

    def worst(dtype: torch.dtype) -> float:
        def rounded(x: torch.Tensor) -> torch.Tensor:
            scale = x.abs().amax(-1, keepdim=True) / (448 if dtype == torch.float8_e4m3fn else 57344)
            return (x / scale).to(dtype).double() * scale

        total = torch.stack([rounded(cast(torch.Tensor, one[0])) for one in given]).sum(0)
        return float(((rounded(total.float()) - expected).abs() / slack).max())

    assert worst(torch.float8_e4m3fn) <= 1.0
    assert worst(torch.float8_e5m2) > 1.0


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_no_scheme_of_the_textbook_moves_less_than_the_least(world: int, rows: int) -> None:
    """Bytes by rank of a two-shot and a tree, counted by hand, against what the specs say cannot be avoided."""
    x = torch.zeros(rows, 3)
    given: tuple[Arguments, ...] = ((x,),) * world
    size, row = x.numel() * 4, 3 * 4
    own = [len(ranks.own_rows(rows, rank, world)) * row for rank in range(world)]
    two_shot = [(size - mine) + (world - 1) * mine for mine in own]
    star = [(world - 1) * size if rank == 0 else size for rank in range(world)]
    spec = operators.load("all_reduce")
    assert spec.wire is not None
    least = spec.wire(*given)
    for scheme in (two_shot, star):
        if world > 1:
            assert all(moved >= floor for moved, floor in zip(scheme, least.sent, strict=True))
        assert sum(scheme) >= least.total
    scatter = operators.load("reduce_scatter")
    assert scatter.wire is not None
    least = scatter.wire(*given)
    direct = [size - mine for mine in own]
    assert least.sent == tuple(direct)
    assert sum(direct) == least.total
    gather = operators.load("all_gather")
    assert gather.wire is not None
    ragged = tuple((torch.zeros(len(ranks.own_rows(rows, rank, world)), 3),) for rank in range(world))
    least = gather.wire(*ragged)
    assert sum((world - 1) * mine for mine in own) == least.total
    assert all((world - 1) * mine >= floor for mine, floor in zip(own, least.sent, strict=True))


def test_tokens_travel_only_to_ranks_that_hold_their_experts() -> None:
    spec = operators.load("all_to_all")
    assert spec.wire is not None
    hidden = 4
    experts = torch.ones(2, hidden)

    def rank(ids: list[list[int]]) -> Arguments:
        chosen = torch.tensor(ids, dtype=torch.int64).view(-1, 2)
        return torch.ones(len(chosen), hidden), chosen, torch.ones(chosen.shape), experts, experts

    row = 4 * hidden
    # Rank 0: one token at home, one on ranks 1 and 2, one unused. Rank 1: one on rank 0 twice. Rank 2: none.
    least = spec.wire(rank([[0, 1], [2, 5], [-1, -1]]), rank([[0, 1]]), rank([]))
    assert least.sent == (row * (1 + 1), row * (1 + 1), row * (0 + 1))
    assert least.received == least.sent
    assert least.total == row * (2 + 1 + 1 + 1)
