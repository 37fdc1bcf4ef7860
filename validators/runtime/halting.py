"""Making everybody else stand still while one entry is measured. Standard library only.

Waiting until all others have come to the end of a step costs as long as the longest step takes, again and again. So
they are stopped where they are, judges first, then their workers, and go on afterwards as if nothing had been: whoever
waits for an answer counts only the time in which he ran himself (``slices``).
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from kb.validators.runtime import processes

SLICE_S = 0.5
"""Longest wait in one piece of whoever may be stopped meanwhile."""

_LIMIT_S = 2.0
"""Longest time until all of a judge's processes stand still."""


class Halt:
    """What is stopped at present; one thread at a time has others stopped."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        """Held while others are stopped, and by whoever starts a process, which nobody would have stopped."""
        self.seconds = 0.0
        """How long others were stopped, altogether."""
        self._stopped: list[int] = []
        self._since = 0.0

    def stop(self, roots: Callable[[], Iterable[int]]) -> None:
        """Stop processes and all that descend from them.

        A judge stops and continues its own workers, so it is stopped before them, and those of its workers that stood
        still by then are left to it.

        Args:
            roots: Gives the judges' pids, once no new one can be started any more.
        """
        self.starting.acquire()
        self._since = time.monotonic()
        for root in roots():
            self._signal(root)
            _await_still([root])
            deadline = time.monotonic() + _LIMIT_S
            while running := [pid for pid in processes.tree(root) if not processes.still(pid)]:
                for pid in running:
                    if not processes.stop_pending(pid):  # by its judge, a moment ago
                        self._signal(pid)
                _await_still(running)
                if time.monotonic() > deadline:
                    break

    def _signal(self, pid: int) -> None:
        if pid not in self._stopped:
            self._stopped.append(pid)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGSTOP)

    def go(self) -> None:
        """Let all go on that were stopped, workers before their judges."""
        processes.send_signal(self._stopped[::-1], signal.SIGCONT)
        self._stopped = []
        self.seconds += time.monotonic() - self._since
        self.starting.release()


def _await_still(pids: list[int]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not all(processes.still(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.0005)


def slices(limit_s: float) -> Iterator[float]:
    """Yield lengths of waits, in seconds, until so much time was waited in which this process ran itself.

    Args:
        limit_s: Altogether.
    """
    left = limit_s
    while left > 0:
        piece = min(left, SLICE_S)
        began = time.monotonic()
        yield piece
        left -= max(1e-4, min(time.monotonic() - began, piece))
