"""A bounded queue of judgements: each in a process of its own, which is ended when its time or its owner says so."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kb.server.http.operators import environment
from kb.server.http.problems import Problem
from kb.server.http.settings import Limits

logger = logging.getLogger(__name__)

KEPT = 200
"""Judgements that have ended and can still be asked for."""

_LONGEST_LINE = 8 << 20
_TYPICAL_S = 30.0
_PATIENCE_S = 5.0
_ENDED = frozenset({"done", "failed", "cancelled", "timed_out"})


@dataclass(frozen=True)
class Order:
    """What is to be judged."""

    operator: str
    source: str
    device: str = "cpu"
    dtypes: tuple[str, ...] | None = None
    ghosts: bool = True


@dataclass
class Judgement:
    """One judgement and how far it is."""

    id: str
    owner: str
    """Whose it is: nobody else sees it."""
    order: Order
    created_utc: str
    state: str = "queued"
    """``queued``, ``running``, then ``done`` (there is a verdict), ``failed`` (the judge could not work),
    ``cancelled`` or ``timed_out``."""
    progress: str | None = None
    started_utc: str | None = None
    ended_utc: str | None = None
    report: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.state in _ENDED


class Queue:
    """Judgements that wait, run, and have ended. Lives in one event loop."""

    def __init__(self, limits: Limits, ended: Callable[[str], None]) -> None:
        """Start empty.

        Args:
            limits: How many may wait and run, and for how long.
            ended: Told how each judgement ended: its verdict, or the state that is not ``done``.
        """
        self._limits = limits
        self._tell = ended
        self._known: OrderedDict[str, Judgement] = OrderedDict()
        self._places = asyncio.Semaphore(limits.judges)
        self._took_s = _TYPICAL_S

    def add(self, owner: str, order: Order) -> Judgement:
        """Let a judgement wait for its turn.

        Args:
            owner: Whose it is.
            order: What is to be judged.

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
        made = Judgement(secrets.token_hex(8), owner, order, _now())
        self._known[made.id] = made
        made.task = asyncio.create_task(self._carry_out(made))
        self._forget()
        return made

    def get(self, owner: str, name: str) -> Judgement:
        """Return a judgement.

        Raises:
            Problem: 404 if it is not known, or is somebody else's.
        """
        found = self._known.get(name)
        if found is None or found.owner != owner:
            raise Problem(404, f"no judgement {name[:40]!r} of yours is known", hint="GET /v1/judgements")
        return found

    def all_of(self, owner: str) -> list[Judgement]:
        """Return the judgements of an owner, newest first."""
        return [one for one in reversed(self._known.values()) if one.owner == owner]

    def place_of(self, judgement: Judgement) -> int | None:
        """Return how many judgements are before one that waits, or None."""
        if judgement.state != "queued":
            return None
        before = 0
        for one in self._known.values():
            if one is judgement:
                break
            before += one.state == "queued"
        return before

    def waiting(self) -> int:
        """Return how many judgements wait."""
        return sum(one.state == "queued" for one in self._known.values())

    def running(self) -> int:
        """Return how many judgements run."""
        return sum(one.state == "running" for one in self._known.values())

    async def cancel(self, judgement: Judgement) -> None:
        """End a judgement and all its processes; one that is over stays as it is."""
        if judgement.task is not None and not judgement.is_over:
            judgement.task.cancel()
            await asyncio.wait([judgement.task])
            if not judgement.is_over:
                self._over(judgement, "cancelled")  # it was ended before it had begun

    async def close(self) -> None:
        """End everything."""
        for one in list(self._known.values()):
            await self.cancel(one)

    async def _carry_out(self, judgement: Judgement) -> None:
        try:
            async with self._places:
                judgement.state, judgement.started_utc = "running", _now()
                began = asyncio.get_running_loop().time()
                async with asyncio.timeout(self._limits.judging_s):
                    await self._run(judgement)
                self._took_s = 0.7 * self._took_s + 0.3 * (asyncio.get_running_loop().time() - began)
            self._over(judgement, "failed" if judgement.report is None else "done")
        except TimeoutError:
            judgement.error = {
                "error": "TimedOut",
                "message": f"longer than {self._limits.judging_s:g} s",
                "hint": None,
            }
            self._over(judgement, "timed_out")
        except asyncio.CancelledError:
            self._over(judgement, "cancelled")  # by its owner or by the end of the server: nobody awaits this task
        except Exception:  # the boundary: a fault of ours must not take the queue down
            logger.exception("judgement %s failed", judgement.id)
            judgement.error = {"error": "Failed", "message": "the judge's process failed", "hint": "the server's log"}
            self._over(judgement, "failed")

    def _over(self, judgement: Judgement, state: str) -> None:
        judgement.state, judgement.ended_utc = state, _now()
        self._tell(str((judgement.report or {}).get("verdict")) if state == "done" else state)

    async def _run(self, judgement: Judgement) -> None:
        # Whatever the judge leaves lying about goes with this folder, also if the judge had to be killed.
        with tempfile.TemporaryDirectory(prefix="kb-judging-", ignore_cleanup_errors=True) as folder:
            await self._run_in(judgement, folder)

    async def _run_in(self, judgement: Judgement, folder: str) -> None:
        order = judgement.order
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "kb.service.judge_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environment(), "TMPDIR": folder},
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        try:
            line = json.dumps({**vars(order), "dtypes": list(order.dtypes) if order.dtypes else None}) + "\n"
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            assert process.stdout is not None  # noqa: S101
            process.stdin.write(line.encode("utf-8"))
            await process.stdin.drain()
            process.stdin.close()
            while (said := await process.stdout.readline()) != b"":
                _take(judgement, json.loads(said))
            await process.wait()
        finally:
            await _end(process)
        if judgement.report is None and judgement.error is None:
            message = f"the judge's process ended with {process.returncode} and said nothing"
            judgement.error = {"error": "Failed", "message": message, "hint": "kb doctor"}

    def _forget(self) -> None:
        over = [one.id for one in self._known.values() if one.is_over]
        for name in over[: max(0, len(over) - KEPT)]:
            del self._known[name]


def _take(judgement: Judgement, said: dict[str, Any]) -> None:
    if "progress" in said:
        judgement.progress = str(said["progress"])[:200]
    elif "report" in said:
        judgement.report = said["report"]
    else:
        judgement.error = {name: said.get(name) for name in ("error", "message", "hint")}


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the judge to end, so that it can end its workers, and then make it; nothing may be left behind."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None and sign == signal.SIGTERM:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await process.wait()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
