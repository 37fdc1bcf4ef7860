"""What follows from samples: verdicts, intervals, and why a result counts for nothing. No worker runs here."""

import copy
import json
import random
from typing import Any

import pytest

from kb.validators.runtime import statistics
from kb.validators.runtime.report import REASONS

CALLS = 50


def raw(
    *, gain: float = 1.0, spread: float = 0.002, pairs: int = 8, seed: int = 1, kind: str = "cuda", **changes: float
) -> dict[str, Any]:
    """Make the samples of a session in which the candidate is ``gain`` times as fast as a baseline of 100 µs."""
    dice = random.Random(seed)  # noqa: S311 - the samples of a test
    blocks = []
    for pair in range(pairs):
        for who in ("candidate", "baseline") if pair % 2 == 0 else ("baseline", "candidate"):
            mean = 100.0 / gain if who == "candidate" else 100.0
            rows = []
            for _ in range(3):
                inside = mean * CALLS * dice.gauss(1, spread)
                row = {"wall_us": inside + 20, "device_us": inside, "tail_us": dice.uniform(300, 400), "sweep_us": 500}
                rows.append(row)
            telemetry = {
                "sm_mhz": 1980.0, "mem_mhz": 3201.0, "power_w": 400.0, "temperature_c": 50.0, "throttle": [],
            }  # fmt: skip
            blocks.append({"who": who, "batches": rows, "telemetry": telemetry if kind == "cuda" else None})
    made = {
        "workload": {"axes": {"n": 1}, "dtype": "float32", "law": "normal", "note": ""},
        "regime": {"cache": "cold", "launch": "eager"},
        "baseline": {"name": "library", "version": "1", "source_sha256": "0" * 64},
        "calls_per_batch": CALLS, "slots": CALLS, "blocks": blocks,
        "floor": {"us": 40.0, "bound": "memory", "hard_us": 35.0},
        "launch_us": 5.0, "pipe_us": 20.0, "least_pipe_us": 20.0, "alone_us": 100.0, "default_mhz": 1980.0,
        "sweep_floor_us": 60.0, "confirms": False,
    }  # fmt: skip
    return made | changes


def timing(one: dict[str, Any], kind: str = "cuda") -> dict[str, Any]:
    (found,) = statistics.recompute({"schema": 1, "device": kind, "results": [one]})
    return found


def candidate_rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for block in one["blocks"] if block["who"] == "candidate" for row in block["batches"]]


@pytest.mark.parametrize(("gain", "word"), [(1.0, "SAME"), (1.05, "FAST"), (0.95, "SLOW"), (2.0, "FAST")])
def test_a_difference_beyond_the_noise_is_called_in_its_direction(gain: float, word: str) -> None:
    for seed in range(20):
        found = timing(raw(gain=gain, seed=seed))
        assert found["verdict"] == word
        assert found["quarantined"] is None
        assert found["clocks_agree"]
        assert found["interval"][0] <= found["ratio"] <= found["interval"][1]
        assert found["ratio"] == pytest.approx(gain, rel=0.01)


def test_a_kernel_against_itself_is_never_called_faster_however_noisy_the_machine_is() -> None:
    words = [timing(raw(spread=0.05, seed=seed))["verdict"] for seed in range(40)]
    assert set(words) <= {"AMBIGUOUS", "SAME"}
    assert words.count("AMBIGUOUS") >= 20


def test_a_difference_below_the_least_margin_is_no_win() -> None:
    found = timing(raw(gain=1.006, spread=0.0002))
    assert found["noise"] < 0.002
    assert found["verdict"] == "SAME"


def test_half_a_difference_is_ambiguous() -> None:
    assert timing(raw(gain=1.011, spread=0.004, seed=3))["verdict"] == "AMBIGUOUS"


def test_fewer_than_five_pairs_say_nothing() -> None:
    assert timing(raw(gain=1.5, pairs=4))["verdict"] == "AMBIGUOUS"


def test_equal_samples_give_equal_figures_and_every_change_of_a_time_shows() -> None:
    one = raw(gain=1.05)
    again = json.loads(json.dumps(one))
    assert timing(one) == timing(again)
    again["blocks"][3]["batches"][1]["wall_us"] += 40.0
    assert timing(one) != timing(again)


def test_the_side_file_has_one_form() -> None:
    samples = {"schema": 1, "device": "cuda", "results": [raw()]}
    data = statistics.written(samples)
    assert statistics.recompute(json.loads(data)) == statistics.recompute(samples)
    assert statistics.written(json.loads(data)) == data


def test_blocks_at_a_low_clock_do_not_count() -> None:
    one = raw(gain=1.0)
    for block in one["blocks"]:
        if block["who"] == "candidate":
            block["telemetry"]["sm_mhz"] = 1400.0
    assert timing(one)["verdict"] == "AMBIGUOUS"
    one = raw(gain=1.05, pairs=9)
    for block in one["blocks"][:2]:
        block["telemetry"]["sm_mhz"] = 900.0
        for row in block["batches"]:
            row["wall_us"] *= 2
            row["device_us"] *= 2
    assert timing(one)["ratio"] == pytest.approx(1.05, rel=0.01)


def test_a_win_that_is_a_higher_clock_is_ambiguous() -> None:
    one = raw(gain=1.05)
    for block in one["blocks"]:
        block["telemetry"]["sm_mhz"] = 1980.0 if block["who"] == "candidate" else 1880.0
    assert timing(one)["verdict"] == "AMBIGUOUS"


def test_a_worker_that_claims_less_time_than_passed_is_not_believed() -> None:
    one = raw()
    for row in candidate_rows(one):
        row["device_us"] /= 4
    found = timing(one)
    assert found["quarantined"] == "clocks_disagree"
    assert not found["clocks_agree"]
    assert found["candidate_us"]["median"] == pytest.approx(100, rel=0.02)


def test_a_worker_that_claims_more_time_than_passed_is_not_believed() -> None:
    one = raw()
    candidate_rows(one)[0]["device_us"] *= 1.05
    assert timing(one)["quarantined"] == "clocks_disagree"


def test_what_the_machine_cannot_reach_is_quarantined() -> None:
    found = timing(raw(gain=4.0))
    assert found["quarantined"] == "below_floor"
    assert found["roofline"] > 1


def test_waiting_for_results_is_time_of_the_candidate() -> None:
    one = raw(gain=2.0)
    for row in candidate_rows(one):
        row["tail_us"] += 60.0
    found = timing(one)
    assert found["quarantined"] is None
    assert found["candidate_us"]["median"] == pytest.approx(51.2, rel=0.01)
    for row in candidate_rows(one):
        row["tail_us"] += 2500.0
    found = timing(one)
    assert found["quarantined"] == "late_results"
    assert found["candidate_us"]["median"] > 100


def test_who_answers_for_results_a_little_later_is_not_charged_for_it() -> None:
    one = raw(gain=2.0) | {"answered_for": True}
    at_once = timing(one)["candidate_us"]["median"]
    for row in candidate_rows(one):
        row["tail_us"] = 360.0
    for row in (b for block in one["blocks"] if block["who"] == "baseline" for b in block["batches"]):
        row["tail_us"] = 350.0
    assert timing(one)["candidate_us"]["median"] == at_once
    for row in candidate_rows(one):
        row["tail_us"] = 410.0
    assert timing(one)["candidate_us"]["median"] > at_once


def test_answers_that_scatter_as_much_as_they_differ_are_not_charged() -> None:
    rule = {"tail_rule": "spread"}
    one = raw(gain=2.0)
    at_once = timing(one)["candidate_us"]["median"]
    for number, row in enumerate(candidate_rows(one)):
        row["tail_us"] = 900.0 + 60 * (number % 5)
    for number, row in enumerate(b for block in one["blocks"] if block["who"] == "baseline" for b in block["batches"]):
        row["tail_us"] = 700.0 + 60 * (number % 3)
    assert timing(one | rule)["candidate_us"]["median"] == at_once
    assert timing(one | {"answered_for": True})["quarantined"] == "late_results"
    for row in candidate_rows(one):
        row["tail_us"] += 400.0
    assert timing(one | rule)["quarantined"] == "late_results"


def test_a_baseline_that_is_slower_beside_the_candidate_than_alone_counts_for_nothing() -> None:
    assert timing(raw(gain=2.0, alone_us=70.0))["quarantined"] == "baseline_disturbed"


def test_a_sweep_that_took_no_time_was_none() -> None:
    one = raw()
    candidate_rows(one)[2]["sweep_us"] = 12.0
    assert timing(one)["quarantined"] == "cache_not_cold"


def test_every_reason_to_quarantine_has_a_meaning() -> None:
    assert {"clocks_disagree", "below_floor", "late_results", "baseline_disturbed", "cache_not_cold"} <= set(REASONS)


def test_what_setting_a_batch_off_takes_is_taken_off_on_both_sides() -> None:
    one = raw(gain=1.0, spread=0.0)
    assert timing(one)["candidate_us"]["median"] == 100.0
    one["least_pipe_us"] = 0.0
    assert timing(one)["candidate_us"]["median"] == pytest.approx(100.4)


def test_a_session_on_a_cpu_has_no_telemetry_and_a_wider_margin() -> None:
    found = timing(raw(gain=1.02, spread=0.0005, kind="cpu"), "cpu")
    assert found["verdict"] == "SAME"
    assert found["blocks"][0]["telemetry"] is None


def test_the_record_has_the_fields_that_it_is_checked_against() -> None:
    from kb.models.measured import Timing

    one = raw(gain=1.05)
    one["blocks"][0]["batches"][0]["device_us"] = None
    Timing.model_validate(json.loads(json.dumps(timing(one))))


@pytest.mark.parametrize("name", ["blocks", "floor", "pipe_us", "calls_per_batch"])
def test_samples_that_lack_something_are_an_error(name: str) -> None:
    one = copy.deepcopy(raw())
    del one[name]
    with pytest.raises(KeyError):
        timing(one)


def test_quantiles_are_linear_between_neighbours() -> None:
    assert statistics.quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert statistics.quantile([7.0], 0.9) == 7.0
