"""A bounded queue of judgements: each in a process of its own, which is ended when its time or its owner says so."""

import asyncio
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from kb.errors import KbError
from kb.server.hints import worded
from kb.server.http.problems import Problem
from kb.server.http.settings import Limits
from kb.service.judging_apart import CancelledError, Order, Progress, TookTooLongError, judge_apart

logger = logging.getLogger(__name__)

KEPT = 200
"""Judgements that have ended and can still be asked for."""

Work = Callable[[Progress, threading.Event], Mapping[str, Any]]
"""What a job does: it is told whom to tell of each step, and what says that it is given up."""

_TYPICAL_S = 30.0
_LOOK_S = 0.1
_ENDED = frozenset({"done", "failed", "cancelled", "timed_out"})


@dataclass
class Job:
    """One judgement, alone or before something is filed, and how far it is."""

    id: str
    kind: Literal["judgement", "submission"]
    owner: str
    """Whose it is: nobody else sees it."""
    about: Mapping[str, Any]
    """What is shown of the order."""
    work: Work = field(repr=False)
    created_utc: str
    state: str = "queued"
    """``queued``, ``running``, then ``done`` (there is a result), ``failed`` (the judge could not work, or what was
    judged cannot be filed), ``cancelled`` or ``timed_out``."""
    progress: str | None = None
    started_utc: str | None = None
    ended_utc: str | None = None
    result: Mapping[str, Any] | None = None
    error: dict[str, Any] | None = None
    given_up: threading.Event = field(default_factory=threading.Event, repr=False)
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.state in _ENDED


class Queue:
    """Jobs that wait, run, and have ended. Lives in one event loop; :meth:`judge` may be called from any thread."""

    def __init__(self, limits: Limits, ended: Callable[[str], None]) -> None:
        """Start empty.

        Args:
            limits: How many may wait and run, and for how long.
            ended: Told how each job ended: its verdict, or the state that is not ``done``.
        """
        self._limits = limits
        self._tell = ended
        self._known: OrderedDict[str, Job] = OrderedDict()
        self._turns = asyncio.Semaphore(limits.judges)
        self._places = threading.BoundedSemaphore(limits.judges)
        self._took_s = _TYPICAL_S

    def judge(self, order: Order, progress: Progress | None, given_up: threading.Event | None) -> Mapping[str, Any]:
        """Judge one candidate as soon as fewer judgements run than may, wherever they were ordered.

        Args:
            order: What is to be judged.
            progress: Told of each step.
            given_up: Ends it.

        Raises:
            KbError: As :func:`kb.service.judging_apart.judge_apart`.
        """
        while not self._places.acquire(timeout=_LOOK_S):
            if given_up is not None and given_up.is_set():
                raise CancelledError("the judgement was cancelled before its turn came")
        try:
            return judge_apart(order, progress, given_up, most_s=self._limits.judging_s)
        finally:
            self._places.release()

    def add(self, kind: Literal["judgement", "submission"], owner: str, about: Mapping[str, Any], work: Work) -> Job:
        """Let a job wait for its turn.

        Args:
            kind: What it is.
            owner: Whose it is.
            about: What is shown of it.
            work: What is to be done.

        Raises:
            Problem: 429 if the queue is full, or holds too many of this owner, with a time to wait.
        """
        live = [one for one in self._known.values() if not one.is_over]
        waiting = sum(one.state == "queued" for one in live)
        own = sum(one.owner == owner for one in live)
        if waiting >= self._limits.queued or own >= self._limits.queued_each:
            after = max(1, round(self._took_s * (waiting + 1) / self._limits.judges))
            what = (
                "the queue of judgements is full" if waiting >= self._limits.queued else f"{own} of yours wait or run"
            )
            raise Problem(429, what, hint="ask again later", headers={"Retry-After": str(min(after, 600))})
        made = Job(secrets.token_hex(8), kind, owner, about, work, _now())
        self._known[made.id] = made
        made.task = asyncio.create_task(self._carry_out(made))
        self._forget()
        return made

    def get(self, kind: str, owner: str, name: str) -> Job:
        """Return a job.

        Raises:
            Problem: 404 if it is not known, or is somebody else's.
        """
        found = self._known.get(name)
        if found is None or found.owner != owner or found.kind != kind:
            raise Problem(404, f"no {kind} {name[:40]!r} of yours is known", hint=f"GET /v1/{kind}s")
        return found

    def all_of(self, kind: str, owner: str) -> list[Job]:
        """Return the jobs of an owner, newest first."""
        return [one for one in reversed(self._known.values()) if (one.kind, one.owner) == (kind, owner)]

    def place_of(self, job: Job) -> int | None:
        """Return how many jobs are before one that waits, or None."""
        if job.state != "queued":
            return None
        before = 0
        for one in self._known.values():
            if one is job:
                break
            before += one.state == "queued"
        return before

    def waiting(self) -> int:
        """Return how many jobs wait."""
        return sum(one.state == "queued" for one in list(self._known.values()))

    def running(self) -> int:
        """Return how many jobs run."""
        return sum(one.state == "running" for one in list(self._known.values()))

    async def cancel(self, job: Job) -> None:
        """End a job and all its processes; one that is over stays as it is."""
        if job.task is None or job.is_over:
            return
        job.given_up.set()
        if job.state == "queued":
            job.task.cancel()
        await asyncio.wait([job.task])
        if not job.is_over:
            self._over(job, "cancelled")  # it was ended before it had begun

    async def close(self) -> None:
        """End everything."""
        for one in list(self._known.values()):
            one.given_up.set()
        for one in list(self._known.values()):
            await self.cancel(one)

    async def _carry_out(self, job: Job) -> None:
        loop = asyncio.get_running_loop()

        def step(phrase: str) -> None:
            job.progress = phrase[:200]

        try:
            async with self._turns:
                job.state, job.started_utc = "running", _now()
                began = loop.time()
                job.result = await asyncio.to_thread(job.work, step, job.given_up)
                self._took_s = 0.7 * self._took_s + 0.3 * (loop.time() - began)
            self._over(job, "done")
        except (CancelledError, asyncio.CancelledError):
            self._over(job, "cancelled")  # by its owner or by the end of the server: nobody awaits this task
        except KbError as error:
            hint = worded(error.hint, "routes")
            job.error = {"error": type(error).__name__, "message": error.message, "hint": hint}
            self._over(job, "timed_out" if isinstance(error, TookTooLongError) else "failed")
        except Exception:  # the boundary: a fault of ours must not take the queue down
            logger.exception("%s %s failed", job.kind, job.id)
            job.error = {
                "error": "Failed",
                "message": "the server made a mistake",
                "hint": "whoever runs the server finds more in its log",
            }
            self._over(job, "failed")

    def _over(self, job: Job, state: str) -> None:
        job.state, job.ended_utc = state, _now()
        verdict = (job.result or {}).get("verdict") or (job.result or {}).get("state")
        self._tell(str(verdict) if state == "done" else state)

    def _forget(self) -> None:
        over = [one.id for one in self._known.values() if one.is_over]
        for name in over[: max(0, len(over) - KEPT)]:
            del self._known[name]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
