"""Confidence and saving: what was reported moves them, and nothing is buried for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.models.facts import Standing
from kb.models.plan import Reported
from kb.planning import Tally, scoring
from kb.planning.values import Offer
from kb.transfer import Transfer
from tests.planning.made import entry, ids, plan_of, row, wish

COUNT = st.floats(0, 200)


def sure(tally: Tally, level: str = "measured", kind: str = "recompile") -> float:
    offer = Offer(entry("kernel/gemm/a", tally=tally), Transfer(kind))
    return scoring.confidence(offer, Standing(level, "fresh", "x"), there=True)


def test_amdahl_bounds_what_a_row_can_save() -> None:
    assert scoring.saving_of(0.4, 2.0, 1.0) == pytest.approx(0.2)
    assert scoring.saving_of(0.4, 1e12, 1.0) == pytest.approx(0.4)
    assert scoring.saving_of(0.4, 1.0, 1.0) == 0
    assert scoring.saving_of(0.4, 0.5, 1.0) < 0


@given(COUNT, COUNT, COUNT)
def test_confidence_is_a_probability_with_a_floor(won: float, neutral: float, lost: float) -> None:
    found = sure(Tally(won=won, neutral=neutral, lost=lost))
    assert scoring.FLOOR <= found <= 1


@given(COUNT, COUNT)
def test_a_win_raises_and_a_loss_lowers_it(won: float, lost: float) -> None:
    before = sure(Tally(won=won, lost=lost))
    assert sure(Tally(won=won + 1, lost=lost)) >= before >= sure(Tally(won=won, lost=lost + 1))


def test_better_evidence_and_a_nearer_transfer_are_surer() -> None:
    levels = [sure(Tally(), level) for level in ("documented", "reported", "correct", "measured", "confirmed")]
    assert levels == sorted(levels)
    kinds = [sure(Tally(), kind=kind) for kind in ("port", "retune", "recompile", "exact")]
    assert kinds == sorted(kinds)


def test_many_losses_put_an_entry_behind_a_new_one_which_is_tried_next() -> None:
    used = entry("kernel/gemm/a", tally=Tally(Reported(lost=30), lost=30.0))
    new = entry("kernel/gemm/b")
    plan = plan_of([used, new], wish(row("products", "gemm")))
    assert ids(plan) == [new.id, used.id]
    assert plan.rows[1].reported.lost == 30


def test_wins_put_an_entry_first_and_leave_the_other_one_in_the_plan() -> None:
    used = entry("kernel/gemm/b", tally=Tally(Reported(won=3), won=3.0))
    assert ids(plan_of([entry("kernel/gemm/a"), used], wish(row("p", "gemm")))) == [used.id, "kernel/gemm/a"]


def test_what_was_not_applied_says_nothing() -> None:
    assert sure(Tally(Reported(not_applied=9))) == sure(Tally())


def test_evidence_of_another_device_counts_less() -> None:
    offer = Offer(entry("kernel/gemm/a"), Transfer("recompile"))
    standing = Standing("measured", "fresh", "NVIDIA B200")
    assert scoring.confidence(offer, standing, there=False) < scoring.confidence(offer, standing, there=True)
