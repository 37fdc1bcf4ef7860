"""Warnings: negative results where their condition holds, or may hold."""

from typing import Any

from kb.planning import Known
from kb.planning.warning import warnings_of
from tests.planning.made import entry, row, wish

SAID = {"hypothesis": "It helps.", "condition": "Small batches.", "effect": "It does not."}


def negative(entry_id: str, **raw: Any) -> Known:  # noqa: ANN401
    return entry(entry_id, **{"outcome": "regression", "negative": SAID, **raw})


def test_a_negative_result_on_another_operator_phase_or_format_does_not_concern_the_target() -> None:
    found = [
        negative("technique/a/operator", applies_to=["softmax"]),
        negative("technique/a/phase", applies_to=["gemm"], phase=["decode"]),
        negative("technique/a/format", applies_to=["gemm"], dtypes=["nvfp4"]),
        negative("technique/a/here", applies_to=["gemm"]),
    ]
    assert [one.id for one in warnings_of(found, wish(row("p", "gemm")))] == ["technique/a/here"]


def test_what_was_seen_on_the_device_holds_and_comes_first() -> None:
    claim = {"device": "NVIDIA H100 80GB HBM3"}
    found = [
        negative("technique/a/elsewhere", applies_to=["gemm"], claims=[{"device": "NVIDIA B200"}]),
        negative("technique/b/there", applies_to=["gemm"], claims=[claim]),
    ]
    got = warnings_of(found, wish(row("p", "gemm")))
    assert [(one.id, one.holds) for one in got] == [("technique/b/there", "yes"), ("technique/a/elsewhere", "check")]
    assert (got[0].condition, got[0].effect) == ("Small batches.", "regression: It does not.")


def test_what_a_device_lacks_is_a_warning_there_and_nowhere_else() -> None:
    native = negative("technique/moe/native", outcome="infeasible", operator="gemm_nvfp4", dtypes=["nvfp4"])
    rows = row("head", "gemm_nvfp4", dtypes=("nvfp4",))
    assert [one.holds for one in warnings_of([native], wish(rows, device="H100"))] == ["yes"]
    assert warnings_of([native], wish(rows, device="B200")) == []


def test_a_bad_allocator_concerns_any_step() -> None:
    bad = negative("allocation/workspace_plan/bad")
    assert [(one.id, one.rows) for one in warnings_of([bad], wish(row("p", "gemm")))] == [(bad.id, ())]


def test_a_device_that_nobody_knows_is_not_the_targets() -> None:
    odd = negative("technique/a/x", applies_to=["gemm"], claims=[{"device": "Acme Q1"}])
    assert [one.holds for one in warnings_of([odd], wish(row("p", "gemm")))] == ["check"]
