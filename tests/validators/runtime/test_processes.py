"""What is seen of processes from outside: work that is left, also where it comes to no core."""

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Generator, Iterator

import pytest

from kb.validators.runtime import processes

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="it reads /proc")

SPINS = "import threading\nprint(flush=True)\nwhile True: pass"
SLEEPS = "import time\nprint(flush=True)\ntime.sleep(60)"
TIDIES = """
import os, time
os.sched_setaffinity(0, {%d})
print(flush=True)
end = time.process_time() + 0.16
while time.process_time() < end: pass
time.sleep(60)
"""
BREATHES = """
import time
print(flush=True)
while True:
    end = time.process_time() + 0.006
    while time.process_time() < end: pass
    time.sleep(0.014)
"""
NAPS = "import time\nprint(flush=True)\nwhile True: time.sleep(0.02)"


def started(body: str) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-I", "-c", body], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def spinning() -> Iterator[subprocess.Popen[bytes]]:
    yield from started(SPINS)


@pytest.mark.parametrize("body", [SLEEPS, NAPS])
def test_a_process_at_rest_has_no_work_left(body: str) -> None:
    for process in started(body):
        assert processes.work_left(lambda: [process.pid]) is None  # noqa: B023 - called at once


def test_a_process_that_computes_has_work_left(spinning: subprocess.Popen[bytes]) -> None:
    found = processes.work_left(lambda: [spinning.pid])
    assert found is not None
    assert found > 0.09


def test_work_that_comes_to_no_core_is_work_all_the_same(spinning: subprocess.Popen[bytes]) -> None:
    one = next(iter(os.sched_getaffinity(0)))
    os.sched_setaffinity(spinning.pid, {one})
    os.setpriority(os.PRIO_PROCESS, spinning.pid, 19)
    rivals = [subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) for _ in range(4)]
    try:
        for rival in rivals:
            os.sched_setaffinity(rival.pid, {one})
        time.sleep(0.2)
        before = processes.cpu_seconds([spinning.pid])
        found = processes.work_left(lambda: [spinning.pid])
        used = processes.cpu_seconds([spinning.pid]) - before
        assert used < 0.3, "the rivals leave it little"
        assert found is not None
        assert found > 0.09
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def test_what_is_soon_done_may_take_its_time_on_a_busy_machine() -> None:
    one = next(iter(os.sched_getaffinity(0)))
    rivals = [subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) for _ in range(5)]
    try:
        for rival in rivals:
            os.sched_setaffinity(rival.pid, {one})
        for process in started(TIDIES % one):
            began = time.monotonic()
            found = processes.work_left(lambda: [process.pid])  # noqa: B023 - called at once
            assert found is None
            assert time.monotonic() - began > 0.6, "it had no core to be done sooner"
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def test_each_of_several_workers_may_bring_something_to_its_end() -> None:
    one = next(iter(os.sched_getaffinity(0)))
    rivals = [subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) for _ in range(3)]
    try:
        for rival in rivals:
            os.sched_setaffinity(rival.pid, {one})
        with contextlib.ExitStack() as stack:
            crew = [next(stack.enter_context(contextlib.closing(started(TIDIES % one)))) for _ in range(4)]
            assert processes.work_left(lambda: [process.pid for process in crew], workers=4) is None
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def test_one_of_several_workers_that_computes_is_found(spinning: subprocess.Popen[bytes]) -> None:
    for process in started(SLEEPS):
        found = processes.work_left(lambda: [spinning.pid, process.pid], workers=2)  # noqa: B023 - called at once
        assert found is not None
        assert found > 0.09


def test_a_window_that_lasts_too_long_does_not_make_work_of_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_pids: list[int]) -> int:
        time.sleep(0.4)
        return 0

    for process in started(BREATHES):
        monkeypatch.setattr(processes, "runnable_threads", slow)
        before, began = processes.cpu_seconds([process.pid]), time.monotonic()
        assert processes.work_left(lambda: [process.pid]) is None  # noqa: B023 - called at once
        assert processes.cpu_seconds([process.pid]) - before > processes.BUSY * processes.WINDOW_S
        assert time.monotonic() - began < 1, "the first window said so"


def test_processes_that_are_gone_have_no_work_left() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-c", "pass"])
    process.wait()
    assert processes.work_left(lambda: [process.pid]) is None
