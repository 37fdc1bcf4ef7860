"""What ranks are given: never alike, in groups that begin anywhere, edited on one rank at a time."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime import plan as plans
from kb.validators.runtime.comm.trials import Trial, Trials
from kb.validators.runtime.plan import EDITED, REPEATED, Plan


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(name: str, *, seed: int = 5, wire: str | None = None) -> tuple[Plan, Trials]:
    spec = operators.load(name)
    asked = [one for one in spec.workloads if one.use == "awkward"]
    plan = plans.draw(name, asked, master_seed=seed, calls=(3, 4))
    return plan, Trials(spec, plan, world_size=4, wire=wire)


def given(trial: Trial) -> list[tuple[bytes, ...]]:
    """Return the bytes of every tensor that each rank is given."""
    return [tuple(one["data"] for one in share.arguments if "data" in one) for share in trial.shares]


@pytest.mark.parametrize("name", operators.COMM)
def test_no_two_ranks_are_given_the_same_where_there_is_anything_to_give(name: str) -> None:
    plan, trials = drawn(name)
    for case in plan.cases:
        firsts = [parts[0] for parts in given(trials[case.index])]
        for one, other in itertools.combinations(firsts, 2):
            assert one != other or len(one) == 0


def test_groups_begin_anywhere_and_have_gaps() -> None:
    plan, trials = drawn("all_reduce")
    seen = {trials[case.index].members for case in plan.cases}
    for case in plan.cases:
        trial = trials[case.index]
        assert len(trial.members) == plan.workloads[case.workload].axes["world_size"] == len(trial.shares)
        assert trial.members == tuple(sorted(set(trial.members)))
    assert any(members[0] != 0 for members in seen)
    assert any(members[-1] - members[0] >= len(members) for members in seen)


@pytest.mark.parametrize("name", operators.COMM)
def test_an_edit_changes_one_rank_and_a_repetition_none(name: str) -> None:
    plan, trials = drawn(name)
    before: dict[int, list[tuple[bytes, ...]]] = {}
    edits = 0
    for case in plan.cases:
        now = given(trials[case.index])
        old = before.get(case.workload)
        if old is not None and case.contents == REPEATED:
            assert now == old
        if old is not None and case.contents == EDITED and any(len(parts[0]) > 8 for parts in now):
            changed = [rank for rank, (one, other) in enumerate(zip(old, now, strict=True)) if one != other]
            if len(changed) == 1:
                edits += 1
        before[case.workload] = now
    assert edits >= 3


def test_what_concerns_a_rank_is_only_what_it_has_a_part_in() -> None:
    plan, trials = drawn("all_gather")
    for rank in range(4):
        share = trials.of_rank(rank)
        for case in plan.cases:
            trial = trials[case.index]
            if rank in trial.members:
                assert share.case(case.index) is trial.shares[trial.members.index(rank)]
            else:
                assert share.argument_bytes(case.index) == 0


def test_a_declared_precision_lowers_the_least_traffic_and_widens_the_bound() -> None:
    plan, exact = drawn("all_reduce")
    _, rounded = drawn("all_reduce", wire="float8_e4m3fn")
    for case in plan.cases:
        workload = plan.workloads[case.workload]
        size = {"float32": 4, "float16": 2, "bfloat16": 2}[workload.dtype]
        full, narrow = exact[case.index], rounded[case.index]
        assert narrow.least.total == full.least.total // size
        for one, other in zip(full.shares, narrow.shares, strict=True):
            assert one.outputs[0].equal(other.outputs[0]) or bool(one.outputs[0].isnan().any())
            scale, wider = one.scales[0], other.scales[0]
            assert scale is not None
            assert wider is not None
            assert bool((wider >= scale).logical_or(scale.isnan()).all())


def test_a_precision_that_is_no_narrower_lowers_nothing() -> None:
    plan, exact = drawn("all_reduce")
    _, rounded = drawn("all_reduce", wire="bfloat16")
    for case in plan.cases:
        if plan.workloads[case.workload].dtype != "float32":
            assert rounded[case.index].least == exact[case.index].least


def test_an_operator_without_traffic_is_no_communication() -> None:
    spec = operators.load("gemm")
    workload = Workload({**spec.workloads[0].axes, "world_size": 2}, spec.workloads[0].dtype, spec.workloads[0].law)
    plan = plans.draw("gemm", [workload], master_seed=1, calls=(1, 1))
    with pytest.raises((ValueError, TypeError)):
        Trials(spec, plan, world_size=2, wire=None)
