"""Forecasts: from the judge's times, with where they come from; never from anything else."""

from typing import Any

import pytest

from kb.planning import Known, Wanted, Wish
from kb.planning.forecasting import Measured, forecast, heaviest, measured_of
from kb.planning.values import Size
from kb.prediction import Work
from tests.planning.made import entry, row, wish

DEVICE = "NVIDIA H100 80GB HBM3"
AXES = {"num_tokens": 5184, "hidden_size": 1024}
WORK = Work(8.0 * 5184 * 1024, 4.0 * 5184 * 1024, "bfloat16")
KERNEL = entry("kernel/layernorm/a")
NORMS = row("norms", "layernorm", num_tokens=5184, hidden_size=1024)


def record(candidate_us: float = 12.0, baseline_us: float = 24.0, *, device: str = DEVICE) -> dict[str, Any]:
    workload = {"axes": AXES, "dtype": "bfloat16", "law": "normal", "note": ""}
    return {
        "entry": {"digest": KERNEL.digest}, "decision": {"verdict": "accepted"}, "device": {"name": device},
        "operator": {"name": "layernorm"},
        "roofline": [{"workload": workload, "flops": int(WORK.flops), "essential_bytes": int(WORK.moved_bytes)}],
        "timing": [{
            "workload": workload, "regime": {"cache": "cold", "launch": "graph"}, "quarantined": None,
            "clocks_agree": True, "candidate_us": {"median": candidate_us}, "baseline_us": {"median": baseline_us},
            "baseline": {"name": "torch layer_norm", "version": "2.11.0"},
        }],
    }  # fmt: skip


def measured(*records: dict[str, Any], of: Known = KERNEL) -> Measured:
    return measured_of(of, records)


def ask(found: Measured, *, wanted: Wish | None = None, at: Wanted = NORMS, axes: dict[str, int] = AXES) -> Any:  # noqa: ANN401
    return forecast(found, at, wanted or wish(NORMS), WORK, axes)


def test_what_was_measured_there_at_these_sizes_is_said_as_measured() -> None:
    found = ask(measured(record()))
    assert found.origin == "measured"
    assert abs(found.gain - 2.0) < 0.2
    assert found.low <= found.gain <= found.high
    assert abs(found.latency_us - 12.0) < 1.0


def test_measurements_on_another_device_give_a_prediction_with_its_source() -> None:
    found = ask(measured(record(device="NVIDIA B200")))
    assert found.origin == "predicted"
    assert found.note is not None
    assert found.note.startswith("latency from measurements on ")
    assert "B200" in found.note
    assert found.gain is not None


def test_without_a_measurement_there_is_no_gain_and_a_reason() -> None:
    found = ask(measured())
    assert (found.gain, found.latency_us) == (None, None)
    assert found.note is not None
    assert found.note.startswith("no prediction: ")
    assert found.floor_us is not None


def test_another_shard_is_not_predicted() -> None:
    found = ask(measured(record()), axes={"num_tokens": 5184, "hidden_size": 512})
    assert found.gain is None
    assert found.note is not None


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (("timing", 0), {"quarantined": "below the floor"}),
        (("timing", 0), {"clocks_agree": False}),
        (("entry",), {"digest": "e" * 64}),
        (("decision",), {"verdict": "rejected"}),
        ((), {"roofline": None}),
        ((), {"timing": None}),
    ],
)
def test_times_that_do_not_count_are_left_out(place: tuple[Any, ...], change: dict[str, Any]) -> None:
    made: Any = record()
    inner = made
    for step in place:
        inner = inner[step]
    inner.update(change)
    assert measured(made).candidate == ()


def test_a_time_without_a_baseline_gives_a_latency_and_no_gain() -> None:
    made = record()
    made["timing"][0] |= {"baseline": None, "baseline_us": None}
    found = ask(measured(made))
    assert (found.gain, found.latency_us is None) == (None, False)


def test_an_unknown_device_is_not_taken_for_the_targets() -> None:
    found = ask(measured(record(device="Acme Q1")))
    assert found.gain is None


def test_the_size_that_takes_most_time_is_predicted() -> None:
    both = NORMS.with_(sizes=(Size("b", 1.0, {}), Size("a", 3.0, {}), Size("c", 2.0, {})))
    assert heaviest(both).traffic == "a"
