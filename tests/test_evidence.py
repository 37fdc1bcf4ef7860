"""Evidence: what stands, where; a figure for one device is no evidence on another."""

from typing import Any

from kb import hardware
from kb.evidence import best, standing
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
