"""Turns: steps side by side, and steps alone."""

import threading
import time

import pytest

from kb.validators.runtime.inner import OutOfTimeError
from kb.validators.runtime.turns import ALONE, TOGETHER, Turns


def test_steps_run_side_by_side_and_one_that_needs_the_machine_waits_for_them() -> None:
    turns = Turns()
    turns.take(TOGETHER)
    turns.take(TOGETHER)
    with pytest.raises(OutOfTimeError):
        turns.take(ALONE, deadline=time.monotonic() + 0.01)
    turns.give(TOGETHER)
    turns.give(TOGETHER)
    turns.take(ALONE)
    for need in (TOGETHER, ALONE):
        with pytest.raises(OutOfTimeError):
            turns.take(need, deadline=time.monotonic() + 0.01)
    turns.give(ALONE)
    turns.take(TOGETHER)


def test_nothing_new_begins_while_one_waits_to_be_alone() -> None:
    turns = Turns()
    turns.take(TOGETHER)
    order: list[str] = []

    def alone() -> None:
        turns.take(ALONE)
        order.append("alone")
        turns.give(ALONE)

    def together() -> None:
        turns.take(TOGETHER)
        order.append("together")
        turns.give(TOGETHER)

    first = threading.Thread(target=alone)
    first.start()
    while not turns._waiting:
        time.sleep(0.001)
    second = threading.Thread(target=together)
    second.start()
    time.sleep(0.05)
    assert order == []
    turns.give(TOGETHER)
    first.join(5)
    second.join(5)
    assert order == ["alone", "together"]


def test_many_threads_are_never_beside_one_that_is_alone() -> None:
    turns, inside, lock, faults = Turns(), {TOGETHER: 0, ALONE: 0}, threading.Lock(), []

    def work(number: int) -> None:
        for step in range(40):
            need = ALONE if (step + number) % 3 == 0 else TOGETHER
            turns.take(need, deadline=time.monotonic() + 20)
            with lock:
                inside[need] += 1
                if inside[ALONE] > 1 or (inside[ALONE] and inside[TOGETHER]):
                    faults.append((number, step))
            time.sleep(0.0001)
            with lock:
                inside[need] -= 1
            turns.give(need)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert faults == []
    assert inside == {TOGETHER: 0, ALONE: 0}


def test_whoever_waits_when_it_ends_is_out_of_time() -> None:
    turns = Turns()
    turns.take(ALONE)
    ended: list[str] = []

    def wait() -> None:
        try:
            turns.take(TOGETHER)
        except OutOfTimeError:
            ended.append("ended")

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.02)
    turns.end()
    thread.join(5)
    assert ended == ["ended"]
    with pytest.raises(ValueError, match="expected together or alone"):
        turns.take("sometimes")
