"""One lane of a bundle's run: an inner process, and the entries that it takes one after another. Standard library."""

import argparse
import contextlib
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kb.validators.runtime import halting, turns
from kb.validators.runtime.inner import BoxError, Inner, InnerEndedError, OutOfTimeError
from kb.validators.runtime.telling import tell

_READY_LIMIT_S = 300

_QUICK_ALONE_S = 90.0
"""Longest step alone of a quick timing on a GPU: all others wait, and what is stuck there would cost the run."""


class _HaltedError(Exception):
    """The entry's time is up only because it was stopped for a while."""


class Run(Protocol):
    """What a lane needs of the run that it is part of."""

    archive: Path
    asked: argparse.Namespace
    broken: bool
    """Whether something was given up that could be tried again."""
    count: int
    deadline: float | None
    facts: dict[str, Any]
    halt: halting.Halt | None
    """Stops the others while one measures; None where they are waited for."""
    home: Path
    over: bool
    peaks: dict[str, Any] | None
    threads: int | None
    """Of each judge's own arithmetic; None for as many as there are cores."""
    turns: turns.Turns

    def others(self, lane: "Lane") -> list[int]:
        """Return the pids of the inner processes of all other lanes."""

    def next(self) -> dict[str, Any] | None:
        """Return the next order, None if there is none."""

    def meet(self, said: Mapping[str, Any]) -> None:
        """Take note of what an inner process says of this machine."""

    def learn(self, measured: dict[str, Any] | None) -> None:
        """Take note of measured peaks."""

    def keep_held(self, held: dict[str, Any] | None) -> None:
        """Keep evidence of values alone."""

    def file(self, said: Mapping[str, Any], seconds: float) -> None:
        """Put what came of an entry into the document."""

    def done(self, order: Mapping[str, Any], label: str, skipped: dict[str, Any] | None) -> None:
        """Write the document after an entry."""

    def spend(self, phase: str, seconds: float, label: str) -> None:
        """Take note of how long something took that no entry counts itself."""


class Lane:
    """One inner process, and the entries that it takes one after another."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.inner: Inner | None = None
        self._fault: dict[str, Any] = {}
        """What the inner process says of a fault of its own: traceback, phase, seconds."""
        self.held: dict[str, Any] | None = None
        self._turn: str | None = None
        self._since = self._ends = self._halted_s = 0.0
        self._alone_limit_s = math.inf
        self._label = self._last = ""

    def work(self) -> None:
        """Take entries until none is left.

        Raises:
            BoxError: Nothing can be done here.
            OutOfTimeError: Time is used up, or the run was ended.
        """
        while (order := self.run.next()) is not None:
            label = f"[{order['number']}/{self.run.count}] {order['id']}@{order['version']}"
            self.held = None
            self._label, self._last = label, "nothing yet"
            skipped: dict[str, Any] | None = None
            self._alone_limit_s = self._limit_alone(order)
            try:
                self._take(turns.TOGETHER)
                self._ends = time.monotonic() + self.run.asked.entry_limit_s
                self._halted_s = 0.0 if self.run.halt is None else self.run.halt.seconds
                self._start()
                reason = self._fitting(order)
                skipped = self._one(order, label) if reason is None else {"reason": reason}
            except OutOfTimeError:
                tell(f"{label}: stopped{'; its values are kept' if self.held else ''}")
                self.run.keep_held(self.held)
                raise
            except (InnerEndedError, ValueError, KeyError, TypeError) as error:
                # Gone, stuck, or not making sense: it costs this entry, and the next one gets a new process.
                self.run.keep_held(self.held)
                printed = "" if self.inner is None else self.inner.printed()
                self.end()
                if self.run.over:
                    raise OutOfTimeError from error
                self.run.broken = True
                reason = str(error) if isinstance(error, InnerEndedError) else f"the judge's process: {error!r}"
                skipped = {"log": printed, **self._fault, "reason": f"{reason}; the last step was: {self._last}"}
            finally:
                self._fault = {}
                self._give()
            self.run.done(order, label, skipped)

    def _limit_alone(self, order: Mapping[str, Any]) -> float:
        """Return how long one step of an entry may have the machine to itself: everybody else waits for it."""
        asked: float | None = self.run.asked.alone_limit_s
        if asked is not None:
            return asked
        return _QUICK_ALONE_S if order.get("effort") and self.run.asked.device != "cpu" else math.inf

    def _take(self, need: str) -> None:
        self._give()
        self.run.turns.take(need, deadline=self.run.deadline)
        if need == turns.ALONE and self.run.halt is not None:
            self.run.halt.stop(lambda: self.run.others(self))
        self._turn, self._since = need, time.monotonic()

    def _give(self) -> None:
        if self._turn is not None:
            if self._turn == turns.ALONE:
                if self.run.halt is not None:
                    self.run.halt.go()
                self.run.spend("alone", time.monotonic() - self._since, self._label)
            self.run.turns.give(self._turn)
        self._turn = None

    def end(self) -> None:
        """End the inner process."""
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.end()

    def kill(self) -> None:
        """Kill the inner process from another thread; this lane's own sees that it is gone, and clears up."""
        inner = self.inner
        if inner is not None:
            inner.process.kill()

    def _start(self) -> None:
        """Start the inner process unless it runs, and see that it can work here."""
        if self.inner is not None:
            return
        began = time.monotonic()
        with contextlib.nullcontext() if self.run.halt is None else self.run.halt.starting:
            self.inner = Inner(self.run.home, self.run.asked.device, threads=self.run.threads)
        if self.run.over:
            raise OutOfTimeError
        ends = [time.monotonic() + _READY_LIMIT_S, *([] if self.run.deadline is None else [self.run.deadline])]
        try:
            said = self.inner.answer(min(ends))
        except InnerEndedError as error:
            if self.run.facts:
                raise
            raise BoxError(f"{error}; an isolated Python sees neither PYTHONPATH nor the user's packages") from error
        if "unable" in said:
            if self.run.facts:  # it could before, or beside this one
                raise InnerEndedError(f"the judge cannot work here any more: {said['unable']}")
            hint = "numpy and torch have to be installed where python -I finds them, in a venv, say"
            raise BoxError(f"the judge cannot work here: {said['unable']}; {hint}")
        for folder in said["candidates_read"]:
            if self.run.archive.is_relative_to(folder):
                raise BoxError(f"candidates may read {folder}: move {self.run.archive.name} and its key somewhere else")
        self.run.meet(said)
        self.run.spend("process", time.monotonic() - began, self._label)

    def _fitting(self, order: Mapping[str, Any]) -> str | None:
        """Say why an entry is not for this device, or None."""
        arch = str(self.run.facts["arch"])
        if arch not in order["runs_on"]:
            return f"whether it runs on {arch} was not known when the bundle was made"
        reason = order["runs_on"][arch]
        return None if reason is None else str(reason)

    def _one(self, order: Mapping[str, Any], label: str) -> dict[str, Any] | None:
        """Have one entry judged; returns why it could not be: ``reason``, and what helps to understand it."""
        if self.inner is None:
            raise InnerEndedError("it was not started")
        began = time.monotonic()
        self._step(f"{label}: starting")
        self.inner.send({name: value for name, value in order.items() if name not in ("runs_on", "number")})
        while True:
            said = self._hear()
            if "step" in said:
                self._last = str(said["step"])[:200]
                self._step(f"{label}: {time.monotonic() - began:.0f} s: {self._last}")
            elif "held" in said:
                self.held = said["held"]
            elif "needs" in said:
                self.run.learn(said["peaks"])
                asked = time.monotonic()
                self._take(str(said["needs"]))
                self._ends += time.monotonic() - asked  # others' turns are not its own time
                self.inner.send({"peaks": self.run.peaks})
            elif "skipped" in said:
                return {"reason": str(said["skipped"]), **_told(said)}
            elif "failed" in said:
                self._fault = _told(said)
                raise InnerEndedError(f"the judge failed in phase {said['phase']}: {said['failed']}")
            else:
                self.run.learn(said["peaks"])
                self.run.file(said, time.monotonic() - began)
                self.held = None
                return None

    def _was_halted(self) -> bool:
        """Give the entry the time back in which it was stopped; returns whether there was any."""
        halted = 0.0 if self.run.halt is None else self.run.halt.seconds
        lost, self._halted_s = halted - self._halted_s, halted
        self._ends += lost
        return lost > 0

    def _step(self, text: str) -> None:
        if not self.run.asked.quiet:
            tell(text)

    def _hear(self) -> dict[str, Any]:
        """Wait for the next line of the inner process, as long as its entry may take.

        Raises:
            InnerEndedError: It is gone, or said nothing for too long.
            OutOfTimeError: The run is out of time.
        """
        if self.inner is None:
            raise InnerEndedError("it was not started")
        while True:
            try:
                return self._answer(self.inner)
            except _HaltedError:
                continue

    def _answer(self, inner: Inner) -> dict[str, Any]:
        deadline = self.run.deadline
        alone = self._since + self._alone_limit_s if self._turn == turns.ALONE else math.inf
        try:
            return inner.answer(min(self._ends, alone, math.inf if deadline is None else deadline))
        except OutOfTimeError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            if time.monotonic() >= alone:
                raise InnerEndedError(f"given up after {self._alone_limit_s:.0f} s alone; --alone-limit-s") from None
            if self._was_halted():
                raise _HaltedError from None
            limit = self.run.asked.entry_limit_s
            raise InnerEndedError(f"given up after {limit:.0f} s; --entry-limit-s gives it more") from None


def _told(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an inner process says of why it could not go on: traceback, phase, seconds of each phase."""
    return {name: said[name] for name in ("log", "phase", "seconds") if name in said}
