"""Timing with real workers on the CPU: honest work is timed, and no way to look faster gets through.

Machines that run tests are busy, so nothing here depends on how long anything takes, but for differences of many
milliseconds.
"""

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime import pairing, statistics
from kb.validators.runtime.batches import Batch
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.lineup import Baseline
from kb.validators.runtime.pairing import Regime, Session, Shape
from kb.validators.runtime.sessions import time_candidate, workloads_of
from kb.validators.runtime.shaping import Effort, shape_for
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.supply import Supply
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.workplace import Workplace
from tests.validators.runtime.timed import (
    AHEAD,
    FORGER,
    HELD_BACK,
    HONEST,
    LATE,
    LAZY,
    MEMO,
    PACKED,
    SKIPPER,
    SLEEPY,
    SPINNER,
)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]

OPERATOR = operators.load("rmsnorm")
WORKLOAD = Workload({"num_tokens": 4, "hidden_size": 64}, "float32")
SHAPE = Shape(slots=6, spares=2, batches=1, sweep_bytes=1 << 16, pairs=3, warm_ups=1)
PEAKS = {
    "copy_gbps": 7.0, "read_gbps": 7.0, "l2_gbps": 20.0, "matmul_tflops": {"float32": 0.05}, "launch_us": 4.0,
    "node_us": None, "l2_bytes": 1 << 16,
}  # fmt: skip


Run = Callable[..., Session]
"""Starts a candidate's process; takes its source and the shape of the session."""


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


@pytest.fixture(scope="module")
def baseline(place: Workplace) -> Iterator[Side]:
    side = Side(HONEST.encode(), place=place)
    side.start(OPERATOR, [WORKLOAD])
    yield side
    side.end()


@pytest.fixture
def run(place: Workplace, baseline: Side) -> Iterator[Run]:
    made: list[Side] = []

    def start(source: str, shape: Shape = SHAPE) -> Session:
        side = Side(source.encode(), place=place, limit_s=30)
        made.append(side)
        side.start(OPERATOR, [WORKLOAD])
        return Session(
            OPERATOR, WORKLOAD, regime=Regime("cold", "eager"), shape=shape, candidate=side, baseline=baseline,
            telemetry=Telemetry(None),
        )  # fmt: skip

    yield start
    for side in made:
        side.end()


def timing_of(blocks: list[dict[str, Any]], **changes: object) -> dict[str, Any]:
    raw = {
        "workload": {"axes": dict(WORKLOAD.axes), "dtype": "float32", "law": "normal", "note": ""},
        "regime": {"cache": "cold", "launch": "eager"},
        "baseline": {"name": "library", "version": "1", "source_sha256": "0" * 64},
        "calls_per_batch": SHAPE.slots, "slots": SHAPE.slots, "blocks": blocks,
        "floor": {"us": 1.0, "bound": "memory", "hard_us": 0.01}, "launch_us": 5.0, "pipe_us": 500.0,
        "least_pipe_us": 0.0, "alone_us": 0.0, "default_mhz": None, "sweep_floor_us": 0.0, "confirms": False,
    }  # fmt: skip
    (found,) = statistics.recompute({"schema": 1, "device": "cpu", "results": [raw | changes]})
    return found


def refused(session: Session) -> tuple[str, str]:
    with pytest.raises(FailedError) as caught:
        session.run()
    return caught.value.reason, caught.value.detail


def test_honest_work_is_timed_in_abba_order_and_every_call_is_compared(run: Run) -> None:
    session = run(HONEST)
    blocks = session.run()
    order = "".join(block["who"][0] for block in blocks)
    assert order == "cbbccb"
    assert session.scrutiny.checked >= 3
    found = timing_of(blocks)
    assert found["quarantined"] in (
        None,
        "late_results",
        "clocks_disagree",
    )  # the last two where a machine stands still
    assert all(row["wall_us"] > row["device_us"] > 0 for block in blocks for row in block["batches"])


def test_contents_are_new_in_every_batch_and_replacements_differ_by_one_element() -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    first = supply.begin(4, 2, 10)
    later = supply.several(1, 4)[0]
    more = [one for batch in supply.several(3, 4) for one in batch]
    tensors = [one.arguments[0] for one in (*first, *later, *more)]
    assert len({bytes(t.numpy()) for t in tensors}) == len(tensors)  # type: ignore[attr-defined]
    assert all((a.arguments[1] == b.arguments[1]).all() for a, b in zip(first[:4] * 4, later[:4] + more, strict=True))  # type: ignore[attr-defined]
    changed = supply.replacement(later[1], 1)
    assert int((changed.arguments[0] != later[1].arguments[0]).sum()) == 1  # type: ignore[attr-defined]


def test_a_baseline_alone_meets_the_same_contents_each_time_and_only_more_of_them_are_drawn() -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    few, more = supply.kept(2), supply.kept(5)
    assert [one.seed for one in more[:2]] == [one.seed for one in few]
    assert len({one.seed for one in more}) == 5
    assert all(torch.equal(a.arguments[0], b.arguments[0]) for a, b in zip(few, more[:2], strict=True))  # type: ignore[arg-type]


def test_slower_work_is_called_slower(run: Run) -> None:
    blocks = run(SLEEPY, Shape(6, 2, 1, 0, 5, 1)).run()
    found = timing_of(blocks)
    assert found["candidate_us"]["min"] >= 20_000
    assert found["verdict"] == "SLOW"


@pytest.mark.parametrize("clock", ["time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.time"])
def test_a_patched_clock_changes_no_time(clock: str, run: Run) -> None:
    session = run(SLEEPY + f"\n{clock} = lambda: 0\n")
    found = timing_of(session.run())
    assert found["candidate_us"]["min"] >= 20_000
    assert session.sides["candidate"].changed() == [f"patched:{clock}"]


def test_a_forged_clock_of_the_worker_disagrees_with_the_judges(run: Run) -> None:
    found = timing_of(run(FORGER).run())
    assert found["candidate_us"]["min"] >= 20_000
    assert found["quarantined"] == "clocks_disagree"


def test_being_slow_at_first_buys_no_shorter_measurement(run: Run) -> None:
    source = SLEEPY.replace("    sleep(0.02)", "    global left\n    left -= 1\n    sleep(0.02 if left > 0 else 0)")
    blocks = run(source + "\nleft = 20\n").run()
    assert [len(block["batches"]) for block in blocks] == [1] * (2 * SHAPE.pairs)
    assert timing_of(blocks)["calls_per_batch"] == SHAPE.slots


def test_zeros_after_a_plausible_sleep_are_wrong(run: Run) -> None:
    source = "import time\nimport torch\n\ndef run(x, weight, eps=1e-6):\n    time.sleep(0.001)\n    return x * 0\n"
    assert refused(run(source))[0] == "wrong_values"


def test_results_that_a_thread_writes_later_are_wrong(run: Run) -> None:
    assert refused(run(LATE))[0] == "wrong_values"


def test_results_that_are_held_back_until_a_thread_has_written_them_cost_that_time(run: Run) -> None:
    found = timing_of(run(HELD_BACK).run())
    # Where the machine stands still, its clocks may have drifted apart besides.
    assert found["quarantined"] in ("late_results", "clocks_disagree")
    assert found["candidate_us"]["median"] >= 150_000 / SHAPE.slots


def test_a_tensor_that_computes_when_it_is_read_is_no_result(run: Run) -> None:
    assert refused(run(LAZY))[0] == "lazy_result"


def test_computing_a_whole_batch_at_its_first_call_is_wrong_where_contents_were_replaced(run: Run) -> None:
    assert refused(run(SKIPPER))[0] == "wrong_values"


def test_looking_at_some_elements_does_not_show_which_contents_were_replaced(run: Run) -> None:
    source = SKIPPER.replace("    return", "    seen[id(x)] = (x, weight)\n    return").replace(
        "ready[key] =", "ready[key, float(a.reshape(-1)[::7].sum())] ="
    )
    source = source.replace("id(x) not in ready", "(id(x), float(x.reshape(-1)[::7].sum())) not in ready")
    source = source.replace("ready.pop(id(x))", "ready.pop((id(x), float(x.reshape(-1)[::7].sum())))")
    assert refused(run(source, Shape(6, 3, 2, 0, 5, 1)))[0] == "wrong_values"


@pytest.mark.parametrize("key", ["x.data_ptr()", "(id(x), x._version)"])
def test_results_remembered_by_address_or_identity_are_wrong(key: str, run: Run) -> None:
    assert refused(run(MEMO.replace("KEY", key), Shape(6, 3, 2, 0, 4, 1)))[0] == "wrong_values"


def test_results_remembered_by_all_contents_never_come_back(run: Run) -> None:
    source = MEMO.replace("KEY", "bytes(x.numpy()) + bytes(weight.numpy())")
    run(source.replace("    if key", "    assert key not in known\n    if key")).run()


def test_a_thread_between_batches_finds_nothing_to_work_ahead_on(run: Run) -> None:
    found = timing_of(run(AHEAD).run())
    assert found["candidate_us"]["min"] >= 9_000


def test_threads_of_the_candidate_stand_still_while_the_baseline_runs(run: Run, baseline: Side) -> None:
    session = run(SPINNER)
    session._begin()
    session.prepare(session._contents(session._first))
    candidate = session.sides["candidate"]
    before = candidate.worker.cpu_seconds()
    contents, _ = session._contents(session._first)
    for _ in range(20):
        baseline.time(contents, session._batch, picks=(0,))
    baseline.rest()
    assert candidate.worker.cpu_seconds() - before <= 0.02


def test_weights_packed_once_and_an_idle_pool_of_threads_are_honest(run: Run) -> None:
    session = run(PACKED)
    assert len(session.run()) == 2 * SHAPE.pairs
    assert session.sides["candidate"].changed() == []


def test_only_timing_is_done_alone_and_pairs_that_do_not_fit_at_once_go_in_several_legs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "_LEG_BYTES", 1)
    session = run(HONEST, replace(SHAPE, pairs=2, extensions=1))
    steps = session.steps(is_open=lambda _: True)
    blocks: list[dict[str, Any]] = []
    needs: list[str] = []
    checked: list[int] = []
    while True:
        try:
            needs.append(next(steps))
        except StopIteration as end:
            blocks = end.value
            break
        checked.append(session.scrutiny.checked)
    assert needs == ["together", *["alone", "together"] * 4]
    assert checked == sorted(checked)
    assert all(before == after for before, after in zip(checked[1::2], checked[2::2], strict=True))
    assert checked[3] > checked[2]
    assert "".join(block["who"][0] for block in blocks) == "cbbccbbc"


def test_an_open_answer_gets_more_pairs_as_often_as_was_fixed(run: Run) -> None:
    session = run(HONEST, Shape(4, 1, 1, 0, 2, 1, extensions=2))
    asked: list[int] = []

    def is_open(so_far: list[dict[str, Any]]) -> bool:
        asked.append(len(so_far))
        return True

    blocks = session.run(is_open=is_open)
    assert asked == [4, 8]
    assert "".join(block["who"][0] for block in blocks) == "cbbccbbccbbc"


def test_writing_to_an_input_in_a_timed_call_is_seen(run: Run) -> None:
    source = HONEST.replace("    return", "    y =").replace(
        "weight, eps)\n", "weight, eps)\n    x.zero_()\n    return y\n"
    )
    assert refused(run(source))[0] == "input_changed"


def test_failing_in_a_timed_call_is_the_candidates(run: Run) -> None:
    source = (
        HONEST.replace("    return", "    global left\n    left -= 1\n    assert left, 'tired'\n    return")
        + "\nleft = 15\n"
    )
    reason, detail = refused(run(source))
    assert reason == "crashed"
    assert "tired" in detail


def test_a_failing_baseline_is_none_of_the_candidates(place: Workplace, baseline: Side) -> None:
    wrong = Side(HONEST.replace("weight, eps)", "weight, eps) * 2").encode(), place=place)
    try:
        wrong.start(OPERATOR, [WORKLOAD])
        session = Session(
            OPERATOR, WORKLOAD, regime=Regime("cold", "eager"), shape=SHAPE, candidate=baseline, baseline=wrong,
            telemetry=Telemetry(None),
        )  # fmt: skip
        with pytest.raises(JudgeError):
            session.run()
    finally:
        wrong.end()
        baseline.wake()


def test_the_public_call_picks_the_strongest_baseline_confirms_and_recomputes() -> None:
    slow = SLEEPY.replace("0.02", "0.004")
    found = time_candidate(
        OPERATOR, SLEEPY.encode(), workloads=[WORKLOAD], regimes=[Regime("cold", "eager")], measured=PEAKS,
        baselines=[Baseline("slow", "1", slow.encode()), Baseline("library", "1", HONEST.encode())],
        effort=Effort(pairs=5, least_calls=4, most_slots=4, warm_ups=1),
    )  # fmt: skip
    assert found.verdict.reasons == []
    (timing,) = found.timing
    assert timing["baseline"]["name"] == "library"
    assert timing["verdict"] == "SLOW"
    assert timing["confirms"]
    assert len(found.samples["superseded"]) == 1
    assert found.samples["results"][0]["weaker_baselines"] == ["slow"]
    assert statistics.recompute(json.loads(statistics.written(found.samples))) == list(found.timing)


def test_a_baseline_whose_results_are_wrong_gives_way_to_the_next_one() -> None:
    wrong = HONEST.replace("weight, eps)", "weight, eps) * 2").encode()
    slow = SLEEPY.replace("0.02", "0.004")
    found = time_candidate(
        OPERATOR, HONEST.encode(), workloads=[WORKLOAD], regimes=[Regime("cold", "eager")], measured=PEAKS,
        baselines=[Baseline("slow", "1", slow.encode()), Baseline("wrong", "1", wrong)],
        effort=Effort(pairs=5, least_calls=4, most_slots=4, warm_ups=1, confirm=False),
    )  # fmt: skip
    assert found.verdict.reasons == []
    assert any(one.endswith("wrong: a result of the baseline is wrong") for one in found.notes)
    assert [(one["baseline"]["name"], one["verdict"]) for one in found.timing] == [("slow", "FAST")]
    assert found.samples["results"][0]["weaker_baselines"] == []


def test_without_a_baseline_that_takes_it_a_workload_is_left_out_and_said() -> None:
    found = time_candidate(
        OPERATOR, HONEST.encode(), workloads=[WORKLOAD], measured=PEAKS,
        baselines=[Baseline("library", "1", HONEST.encode(), lambda _: False)],
    )  # fmt: skip
    assert found.timing == ()
    assert any("no baseline" in one for one in found.notes)


def test_batches_are_long_against_what_setting_them_off_takes_and_go_through_the_cache() -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    cold = Regime("cold", "eager")
    cache = {"kind": "cuda", "cache_bytes": 1 << 16, "effort": Effort()}
    shape = shape_for(10.0, 20.0, supply, regime=cold, **cache)  # type: ignore[arg-type]
    assert shape is not None
    assert shape.slots * 10.0 >= 100 * 20.0
    assert shape.slots * supply.moving_bytes >= 4 * cache["cache_bytes"] or shape.sweep_bytes >= 4 << 16  # type: ignore[operator]
    large = Supply(OPERATOR, Workload({"num_tokens": 64, "hidden_size": 2048}, "float32"), shared=True)
    assert shape_for(10.0, 20.0, large, regime=Regime("warm", "eager"), **cache) is None  # type: ignore[arg-type]


def test_only_what_a_cpu_does_in_reasonable_time_is_timed_there() -> None:
    here, there = (workloads_of(OPERATOR, device=device) for device in ("cpu", "cuda:0"))
    assert set(map(str, here)) < set(map(str, there))
    assert here


def test_an_empty_batch_costs_the_channel_alone(baseline: Side) -> None:
    baseline.wake()
    clocked = baseline.time([], Batch(()), picks=())
    assert clocked.device_us == 0.0
    assert clocked.wall_us > 0
