"""How long each phase of an attempt took: what a run is spent on, and where it was when it failed. Standard library."""

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

WAITING = "waiting"
"""The phase in which a step waits for its turn."""


class Stopwatch:
    """One phase after the other; a phase that comes again goes on counting."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.phase = ""
        self._now, self._since = now, now()
        self._seconds: dict[str, float] = {}

    def enter(self, phase: str) -> None:
        """End the phase that runs, and begin one."""
        at = self._now()
        if self.phase:
            self._seconds[self.phase] = self._seconds.get(self.phase, 0.0) + at - self._since
        self.phase, self._since = phase, at

    @property
    def seconds(self) -> dict[str, float]:
        """By phase, the one that runs among them, rounded to milliseconds."""
        running = {self.phase: self._now() - self._since} if self.phase else {}
        names = dict.fromkeys((*self._seconds, *running))
        return {name: round(self._seconds.get(name, 0.0) + running.get(name, 0.0), 3) for name in names}

    def turn(self, need: str) -> Generator[str, None, None]:
        """Yield a need, and count the time until it is granted as ``WAITING``; the phase goes on afterwards."""
        before = self.phase
        self.enter(WAITING)
        yield need
        self.enter(before)


def fault_of(error: BaseException, *, most: int = 6000) -> str:
    """Return the end of a traceback with all its causes, for whoever was not there."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-most:]


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return, by phase in order of appearance, the seconds of all rows together and of the longest."""
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        for phase, seconds in row.items():
            total, most = found.get(phase, (0.0, 0.0))
            found[phase] = total + float(seconds), max(most, float(seconds))
    return found
