"""The plan: unforeseeable, repeatable from its seed, and hashed."""

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime.contents import draw_arguments
from kb.validators.runtime.plan import EDITED, FRESH, REPEATED, SAME_WEIGHTS, draw

WORKLOADS = tuple(Workload({"num_tokens": n, "hidden_size": 16}, "float32") for n in (1, 3, 5))


@given(st.integers(0, 2**128 - 1))
def test_every_workload_is_called_several_times_in_one_mixed_order(seed: int) -> None:
    made = draw("rmsnorm", WORKLOADS, master_seed=seed)
    counts = Counter(case.workload for case in made.cases)
    assert set(counts) == {0, 1, 2}
    assert all(3 <= count <= 6 for count in counts.values())
    assert [case.index for case in made.cases] == list(range(len(made.cases)))


@given(st.integers(0, 2**128 - 1))
def test_the_second_call_has_new_contents_at_the_old_place(seed: int) -> None:
    made = draw("rmsnorm", WORKLOADS, master_seed=seed)
    for which in range(3):
        first, second = [case for case in made.cases if case.workload == which][:2]
        assert first.contents == FRESH
        assert second.slot == first.slot
        assert second.contents != REPEATED


def test_the_same_seed_gives_the_same_digest_and_another_another() -> None:
    one, same, other = (draw("rmsnorm", WORKLOADS, master_seed=seed).sha256 for seed in (7, 7, 8))
    assert one == same
    assert one != other


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64))
def test_contents_come_about_as_the_plan_says(seed: int) -> None:
    operator = operators.load("rmsnorm")
    made = draw("rmsnorm", WORKLOADS, master_seed=seed)
    before: dict[int, tuple[object, ...]] = {}
    for case, arguments in draw_arguments(operator, made):
        x, weight = arguments[0], arguments[1]
        assert isinstance(x, torch.Tensor)
        assert isinstance(weight, torch.Tensor)
        if case.workload in before:
            old_x, old_weight = before[case.workload][:2]
            assert isinstance(old_x, torch.Tensor)
            assert isinstance(old_weight, torch.Tensor)
            changed = int((x != old_x).sum())
            if case.contents == EDITED:
                assert (changed, bool(torch.equal(weight, old_weight))) == (1, True)
            elif case.contents == REPEATED:
                assert torch.equal(x, old_x)
                assert x.data_ptr() != old_x.data_ptr()
            elif case.contents == SAME_WEIGHTS:
                assert torch.equal(weight, old_weight)
                assert changed > 1
            else:
                assert changed > 1
                assert not torch.equal(weight, old_weight)
        before[case.workload] = arguments
