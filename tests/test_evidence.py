"""Evidence: what stands, where; a figure for one device is no evidence on another."""

from typing import Any

import pytest

from kb import hardware
from kb.evidence import Today, best, measured_on, read_today, shown, standing
from kb.models.facts import Standing
from kb.transfer import Transfer

CLAIM: dict[str, Any] = {
    "metric": "decode_tokens_per_s", "value": 1792.0, "unit": "tokens/s", "better": "higher", "device": "NVIDIA B200",
    "workload": "single stream", "baseline": "vLLM 0.25.1", "baseline_value": 943.0, "source": "published",
}  # fmt: skip


def test_without_a_figure_an_entry_is_documented() -> None:
    found = standing({})
    assert (found.level, found.freshness) == ("documented", "unknown")
    assert best({}) is None


def test_a_published_figure_makes_it_reported_where_it_was_made() -> None:
    found = standing({"claims": [CLAIM]})
    assert (found.level, found.device) == ("reported", "NVIDIA B200")


def test_a_figure_for_one_device_is_no_evidence_on_another() -> None:
    found = standing({"claims": [CLAIM]}, scope=hardware.resolve("H200"))
    assert found.level == "documented"
    assert "reported on NVIDIA B200 only" in found.reasons


def test_code_that_cannot_run_there_is_infeasible_there() -> None:
    lacking = Transfer("technique", ("needs fp4_mma, which sm_90 lacks",))
    found = standing({"entry_point": "kernel.py:run"}, scope=hardware.resolve("H100"), transfer=lacking)
    assert found.freshness == "infeasible"
    assert found.reasons == lacking.reasons


def test_prose_is_never_infeasible() -> None:
    found = standing({}, scope=hardware.resolve("H100"), transfer=Transfer("technique", ("an idea",)))
    assert found.freshness == "unknown"


def test_the_best_figure_names_its_device_baseline_and_source() -> None:
    found = best({"claims": [CLAIM]})
    assert found is not None
    assert (found.device, found.baseline, found.speedup, found.source) == (
        "NVIDIA B200",
        "vLLM 0.25.1",
        1.9,
        "published",
    )


def test_a_figure_of_the_asked_device_comes_first() -> None:
    other = {**CLAIM, "device": "NVIDIA H200", "value": 10.0, "baseline_value": None, "baseline": None}
    found = best({"claims": [CLAIM, other]}, scope=hardware.resolve("H200"))
    assert found is not None
    assert found.device == "NVIDIA H200"


def test_a_figure_for_some_member_of_a_family_is_evidence_for_the_family_and_for_no_member() -> None:
    facts = {"claims": [{**CLAIM, "device": "NVIDIA H100"}]}
    assert standing(facts, scope=hardware.resolve("H100")).level == "reported"
    assert standing(facts, scope=hardware.resolve("Hopper")).level == "reported"
    assert standing(facts, scope=hardware.resolve("NVIDIA H100 80GB HBM3")).level == "documented"
    assert standing(facts, scope=hardware.resolve("B200")).level == "documented"


CELL: dict[str, Any] = {
    "device": "NVIDIA H200", "arch": "sm_90", "regime": None, "level": "correct", "state": "holds", "stale": [],
    "same_code": True, "pins": ["triton"], "versions": {"triton": "3.6.0", "driver": "580.1"},
    "when": "2026-12-01T10:00:00Z", "version": 1, "records": ["a/records/1.json"], "figures": [], "notes": [],
}  # fmt: skip
FIGURE: dict[str, Any] = {
    "workload": "tokens 64, bfloat16", "median_us": 10.0, "ratio": 1.5, "interval": [1.4, 1.6], "verdict": "FAST",
    "baseline": "torch.nn.functional.rms_norm", "baseline_version": "torch 2.11.0", "roofline": 0.7, "bound": "memory",
}  # fmt: skip
TIMED: dict[str, Any] = {
    **CELL, "regime": "cold, graph", "level": "measured", "pins": ["triton", "driver"], "figures": [FIGURE],
}  # fmt: skip
NEWER = Today({"NVIDIA H200": {"triton": "3.6.0", "driver": "590.1"}})


def test_a_record_is_evidence_on_its_device_and_on_no_other() -> None:
    assert standing({}, scope=hardware.resolve("H200"), cells=[CELL]) == Standing("correct", "fresh", "NVIDIA H200")
    elsewhere = standing({}, scope=hardware.resolve("B200"), cells=[CELL])
    assert (elsewhere.level, elsewhere.freshness) == ("documented", "unknown")
    assert "records are of NVIDIA H200" in elsewhere.reasons[0]


def test_a_record_goes_before_a_published_figure() -> None:
    found = standing({"claims": [CLAIM]}, cells=[CELL])
    assert (found.level, found.device) == ("correct", "NVIDIA H200")


def test_values_that_hold_go_before_times_that_are_stale_which_are_named() -> None:
    found = standing({}, scope=hardware.resolve("H200"), cells=[CELL, TIMED], today=NEWER)
    assert (found.level, found.freshness) == ("correct", "fresh")
    assert found.reasons == ("measured (cold, graph) is stale: driver 580.1 → 590.1",)
    assert standing({}, cells=[CELL, TIMED]).level == "measured"


def test_what_is_stale_altogether_says_so() -> None:
    found = standing({}, cells=[CELL, TIMED], today=Today({"NVIDIA H200": {"triton": "3.7.0"}}))
    assert (found.level, found.freshness) == ("measured", "stale")
    assert found.reasons[0] == "triton 3.6.0 → 3.7.0"


def test_refuted_on_one_device_is_said_where_another_holds() -> None:
    refuted = {**CELL, "device": "cpu", "level": "documented", "state": "refuted", "notes": ["rejected on 2026-12-02"]}
    found = standing({}, cells=[refuted, CELL])
    assert (found.level, found.freshness, found.device) == ("correct", "fresh", "NVIDIA H200")
    assert found.reasons == ("refuted on cpu: rejected on 2026-12-02",)
    there = standing({"claims": [CLAIM]}, scope=hardware.resolve("cpu"), cells=[refuted, CELL])
    assert (there.level, there.freshness) == ("documented", "refuted")


def test_what_is_refuted_is_worth_no_more_than_what_was_published() -> None:
    refuted = {**CELL, "level": "documented", "state": "refuted"}
    found = standing({"claims": [{**CLAIM, "device": "NVIDIA H200"}]}, cells=[refuted])
    assert (found.level, found.freshness) == ("reported", "refuted")


def test_an_infeasible_device_stays_so_where_only_others_have_records() -> None:
    lacking = Transfer("technique", ("needs fp4_mma, which sm_90 lacks",))
    cpu = {**CELL, "device": "cpu"}
    found = standing({"entry_point": "k.py:run"}, scope=hardware.resolve("H100"), transfer=lacking, cells=[cpu])
    assert (found.freshness, found.reasons) == ("infeasible", lacking.reasons)


def test_a_measured_figure_goes_before_a_published_one() -> None:
    found = best({"claims": [CLAIM]}, cells=[CELL, TIMED])
    assert found is not None
    assert (found.value, found.speedup, found.regime, found.roofline, found.source) == (
        10.0,
        1.5,
        "cold, graph",
        0.7,
        None,
    )
    assert found.baseline == "torch.nn.functional.rms_norm (torch 2.11.0)"
    assert found.stale is None


def test_a_measured_figure_is_of_the_asked_device_or_is_not_shown() -> None:
    assert best({}, scope=hardware.resolve("B200"), cells=[TIMED]) is None
    published = best({"claims": [CLAIM]}, scope=hardware.resolve("B200"), cells=[TIMED])
    assert published is not None
    assert published.source == "published"


def test_a_stale_figure_says_so_and_a_fresh_one_goes_before_it() -> None:
    stale = best({}, cells=[TIMED], today=NEWER)
    assert stale is not None
    assert stale.stale == "driver 580.1 → 590.1"
    slower = {**TIMED, "versions": {"triton": "3.6.0", "driver": "590.1"}, "figures": [{**FIGURE, "ratio": 1.1}]}
    fresh = best({}, cells=[TIMED, slower], today=NEWER)
    assert fresh is not None
    assert (fresh.speedup, fresh.stale) == (1.1, None)


@pytest.mark.parametrize("changes", [{"same_code": False}, {"state": "refuted"}])
def test_a_figure_of_other_or_refuted_code_is_not_shown(changes: dict[str, object]) -> None:
    assert best({}, cells=[{**TIMED, **changes}]) is None
    assert measured_on([{**TIMED, **changes}]) == ()


def test_where_it_was_measured_transfer_is_exact_also_after_a_new_driver() -> None:
    assert measured_on([CELL, TIMED], NEWER) == ("NVIDIA H200",)
    assert measured_on([CELL]) == ()


@pytest.mark.parametrize(
    ("days", "since"), [(None, None), ("", None), ("0", None), ("28", "2026-11-01T00:00:00Z"), ("99999", "1970")]
)
def test_an_age_limit_counts_back_from_now(days: str | None, since: str | None) -> None:
    found = read_today("{}", days, now=1795910400.0).timed_since
    assert found == since or (since is not None and found is not None and found.startswith(since))


def test_shown_cells_carry_freshness_and_reasons() -> None:
    (found,) = shown([TIMED], NEWER)
    assert found["freshness"] == "stale"
    assert found["reasons"] == ["driver 580.1 → 590.1"]
    assert found["records"] == ["a/records/1.json"]
