"""Judgements of all processes of a machine take turns on a device, and whoever waits can be told to stop."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kb.service import judging_apart
from kb.service.device_locking import device_lock
from kb.service.judging_apart import CancelledError, DeviceBusyError, Order, judge_apart
from kb.store.locks import LockBusyError
from tests.service.test_device_locking import held

ORDER = Order("silu", "def run(x):\n    return x\n")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Judge nothing; return the orders that got their turn. The lock is held meanwhile."""
    found: list[Order] = []

    def judge(order: Order, *_: object) -> Mapping[str, Any]:
        with pytest.raises(LockBusyError):
            device_lock(order.device).__enter__()
        found.append(order)
        return {"verdict": "accepted"}

    monkeypatch.setattr(judging_apart, "_judge", judge)
    return found


def test_whoever_waits_for_another_process_is_told_so_and_then_goes_on(judged: list[Order]) -> None:
    said: list[str] = []
    with held("cpu") as other:
        end = other.stdin
        assert end is not None

        def told(phrase: str) -> None:
            said.append(phrase)
            assert judged == []
            end.close()

        assert judge_apart(ORDER, told, threading.Event())["verdict"] == "accepted"
    assert said == ["waiting for another judgement"]
    assert judged == [ORDER]


def test_a_wait_that_is_given_up_ends_at_once_and_judges_nothing(judged: list[Order]) -> None:
    given_up = threading.Event()
    with held("cpu"):
        began = time.monotonic()
        with pytest.raises(CancelledError, match="before its turn came"):
            judge_apart(ORDER, lambda _: given_up.set(), given_up)
        assert time.monotonic() - began < 30  # the holder would have held it for ever
    assert judged == []


def test_whoever_has_waited_long_enough_is_told_to_call_again(judged: list[Order]) -> None:
    with held("cpu"), pytest.raises(DeviceBusyError, match="others judge on cpu") as refused:
        judge_apart(ORDER, None, threading.Event(), most_s=0.2)
    assert refused.value.hint == "call again later"
    assert "process" not in refused.value.message  # who else works on the machine is nothing for clients
    assert judged == []


def test_another_device_is_not_waited_for(judged: list[Order]) -> None:
    with held("cuda:0"):
        judge_apart(ORDER, None, None)
    assert judged == [ORDER]
