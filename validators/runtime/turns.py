"""Who may go on: any number of steps side by side, or one that needs the machine to itself. Standard library only.

A step alone waits until the others' steps are over, or, where these can be stopped in their midst (``halting``), for
other steps alone only.
"""

import threading
import time
from collections.abc import Generator
from typing import Any

from kb.validators.runtime.inner import OutOfTimeError

TOGETHER, ALONE = "together", "alone"
"""What a step needs."""


def finished(steps: Generator[str, None, Any]) -> Any:  # noqa: ANN401 - what the steps return
    """Take all steps at once, as whoever has the machine to himself does; returns what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Turns:
    """Steps side by side, and steps alone; no new step begins while one waits to be alone."""

    def __init__(self, *, halting: bool = False) -> None:
        """Begin with nobody inside.

        Args:
            halting: Whoever is alone has stopped the others' steps, and need not wait for their end.
        """
        self._halting = halting
        self._changed = threading.Condition()
        self._together, self._waiting, self._alone = 0, 0, False
        self._over = False

    def take(self, need: str, *, deadline: float | None = None) -> None:
        """Wait until a step may begin.

        Args:
            need: ``TOGETHER`` or ``ALONE``.
            deadline: On the monotonic clock; None for none.

        Raises:
            OutOfTimeError: The deadline has passed, or ``end`` was called.
            ValueError: Another need.
        """
        if need not in (TOGETHER, ALONE):
            raise ValueError(f"expected {TOGETHER} or {ALONE}, found {need!r}")
        with self._changed:
            self._waiting += need == ALONE
            try:
                while not self._over and not self._free(need):
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise OutOfTimeError
                    self._changed.wait(left)
                if self._over:
                    raise OutOfTimeError
                self._together += need == TOGETHER
                self._alone = need == ALONE
            finally:
                self._waiting -= need == ALONE
                self._changed.notify_all()

    def _free(self, need: str) -> bool:
        if self._alone:
            return False
        if self._halting:
            return True
        return self._together == 0 if need == ALONE else self._waiting == 0

    def give(self, need: str) -> None:
        """Say that a step that was begun is over."""
        with self._changed:
            if need == ALONE:
                self._alone = False
            else:
                self._together -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody begin any more; whoever waits is out of time."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
