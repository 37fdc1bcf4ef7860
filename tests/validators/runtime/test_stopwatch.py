"""Seconds of each phase, and what a bundle tells of them."""

from collections.abc import Iterator

from kb.validators.runtime.stopwatch import WAITING, Stopwatch, fault_of, summed
from kb.validators.runtime.telling import spent


def ticking(*readings: float) -> Iterator[float]:
    yield from readings


def test_a_phase_that_comes_again_goes_on_counting_and_waiting_for_a_turn_is_a_phase_of_its_own() -> None:
    clock = ticking(0, 0, 2, 3, 10, 14, 20)
    watch = Stopwatch(lambda: next(clock))
    watch.enter("drawing")
    watch.enter("alone")
    turn = watch.turn("alone")
    assert next(turn) == "alone"
    assert watch.phase == WAITING
    assert list(turn) == []
    assert watch.phase == "alone"
    watch.enter("drawing")
    assert watch.seconds == {"drawing": 8, "alone": 5, WAITING: 7}


def test_the_end_of_a_run_says_what_each_phase_took_in_all_and_at_most_and_who_was_alone_longest() -> None:
    rows = [{"values": 10.0, "alone": 2.0}, {"values": 4.2, "alone": 3.0}, {"process": 0.1}]
    assert summed(rows) == {"values": (14.2, 10.0), "alone": (5.0, 3.0), "process": (0.1, 0.1)}
    said = spent(rows, [(2.0, "one"), (3.0, "other")], 20.0)
    assert said.splitlines() == [
        "seconds by phase (the longest): values 14 (10), alone 5 (3)",
        "alone: 2 steps, 5 of 20 s, the longest 3.0 s by other",
    ]
    assert spent([], [], 1.0) == "seconds by phase (the longest): none"


def test_a_fault_is_told_with_its_causes_and_no_longer_than_is_asked_for() -> None:
    told = ""
    try:
        try:
            dict[str, int]()["slot"]
        except KeyError as error:
            raise RuntimeError("nothing laid out") from error
    except RuntimeError as error:
        told = fault_of(error)
    assert "KeyError: 'slot'" in told
    assert told.endswith("RuntimeError: nothing laid out\n")
    assert fault_of(RuntimeError("x" * 9000), most=50) == "x" * 49 + "\n"
