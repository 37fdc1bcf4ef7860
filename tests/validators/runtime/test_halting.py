"""Others are stopped while one measures, and go on as if nothing had been."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kb.validators.runtime import processes
from kb.validators.runtime.halting import Halt, slices

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile True: time.sleep(0.001)"])
print(child.pid, flush=True)
while True: time.sleep(0.001)
"""


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A process and its child, both at work."""
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield parent.pid, child
    os.kill(child, signal.SIGKILL)
    parent.kill()
    parent.wait()
    parent.stdout.close()


def state(pid: int) -> bool:
    """Tell whether it stands still, looking until it does not change any more."""
    time.sleep(0.05)
    return processes.still(pid)


def test_a_process_and_its_descendants_stand_still_and_go_on(family: tuple[int, int]) -> None:
    halt = Halt()
    halt.stop(lambda: [family[0]])
    assert all(processes.still(pid) for pid in family)
    time.sleep(0.05)
    halt.go()
    assert not any(state(pid) for pid in family)
    assert 0.05 <= halt.seconds < 30


def test_what_a_judge_has_stopped_itself_is_left_to_it(family: tuple[int, int]) -> None:
    parent, child = family
    os.kill(child, signal.SIGSTOP)
    halt = Halt()
    halt.stop(lambda: [parent])
    halt.go()
    assert (state(parent), state(child)) == (False, True)
    os.kill(child, signal.SIGCONT)


def test_nothing_is_started_while_others_stand_still_and_what_is_gone_does_no_harm(family: tuple[int, int]) -> None:
    halt = Halt()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    halt.stop(lambda: [gone.pid, family[0]])
    started = threading.Event()

    def start() -> None:
        with halt.starting:
            started.set()

    thread = threading.Thread(target=start)
    thread.start()
    assert not started.wait(0.1)
    halt.go()
    assert started.wait(10)
    thread.join()


def test_only_the_time_in_which_the_waiting_process_ran_counts() -> None:
    whole = list(slices(0.0))
    assert whole == []
    began, pieces = time.monotonic(), 0
    for piece in slices(0.6):
        time.sleep(piece)
        pieces += 1
    assert pieces == 2
    assert time.monotonic() - began >= 0.6
    long = slices(0.6)
    next(long)
    time.sleep(1.5)  # as one that was stopped meanwhile: one piece is gone and no more
    assert next(long) == pytest.approx(0.1, abs=0.02)
