"""All ranks of one job as the judge sees them: started, joined, asked at once, and ended together."""

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kb.validators.runtime import sandbox, starting, verdicts
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.comm import meeting
from kb.validators.runtime.comm.exchange import Traffic
from kb.validators.runtime.comm.switch import Switch
from kb.validators.runtime.comm.warden import Warden
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.launching import Launch, Process
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

ARENA_BYTES = 256 << 20
"""Memory for inputs and results of one rank; only touched pages cost anything."""

WINDOW_BYTES = 16 << 20
"""Memory of one rank that the others can write to."""

_MODULE = "kb.validators.runtime.comm.rank"
_TICK_S = 0.02
_GRACE_S = 1.0
"""How long ranks have to give up when another one has failed."""

_IDLE_S = 0.02
"""CPU time of all ranks over the stall limit that still counts as none."""


@dataclass(frozen=True)
class Answer:
    """What became of one rank's call."""

    reply: dict[str, Any] | None
    ended: WorkerEndedError | None
    seconds: float
    """From the moment all ranks were asked, by the judge's clock."""
    given_up: bool
    """True if another rank had failed before, so that this one may have been told to give up."""

    @property
    def failed(self) -> bool:
        """True if the rank raised or is gone."""
        return self.reply is None or "error" in self.reply


class _Asking:
    """One question to one rank, answered on a thread of its own."""

    def __init__(self, one: Worker, message: dict[str, Any], limit_s: float, began: float) -> None:
        self.reply: dict[str, Any] | None = None
        self.ended: WorkerEndedError | None = None
        self.fault: JudgeError | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(
            target=self._ask, args=(one, message, limit_s, began), name="kb-ask", daemon=True
        )
        self._thread.start()

    def _ask(self, one: Worker, message: dict[str, Any], limit_s: float, began: float) -> None:
        try:
            self.reply = one.ask(message, limit_s=limit_s)
        except WorkerEndedError as error:
            self.ended = error
        except JudgeError as error:
            self.fault = error
        except Exception as error:  # noqa: BLE001 - nobody would hear of it, and a candidate would be blamed
            self.fault = JudgeError(f"rank cannot be asked: {error!r}", "report this")
        self.seconds = time.monotonic() - began

    def over(self, limit_s: float = 0.0) -> bool:
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def failed(self) -> bool:
        return self.over() and (self.reply is None or "error" in self.reply)


class Crew:
    """The ranks of one job, numbered from 0."""

    def __init__(
        self,
        source: bytes,
        *,
        place: Workplace,
        world_size: int,
        memory_bytes: int,
        transport: str = meeting.SWITCH,
        device: str = "cpu",
    ) -> None:
        self.world_size, self.transport = world_size, transport
        self.workers: dict[int, Worker] = {}
        self.arenas = {rank: Arena(ARENA_BYTES) for rank in range(world_size)}
        self._windows = {rank: Arena(WINDOW_BYTES) for rank in range(world_size)}
        self._limits = sandbox.limits_for(device, memory_bytes=memory_bytes)
        self._warden = None if transport == meeting.SWITCH else Warden()
        links = {rank: socket.socketpair() for rank in range(world_size)}
        self.switch = Switch({rank: ours for rank, (ours, _) in links.items()}, self._windows)
        self.switch.start()
        try:
            for rank in range(world_size):
                self.workers[rank] = self._start(source, place, rank, links[rank][1], device)
        finally:
            for _, theirs in links.values():
                theirs.close()

    def _start(self, source: bytes, place: Workplace, rank: int, link: socket.socket, device: str) -> Worker:
        own = device if device == "cpu" else f"cuda:{rank}"
        more = (self._windows[rank].descriptor, link.fileno(), *([self._warden.network] if self._warden else []))

        def spawn(launch: Launch) -> Process:
            start = starting.fork if own == "cpu" else starting.boot
            return start(_MODULE, launch=replace(launch, handles=(*launch.handles, *more)))

        order = {"rank": rank, "world_size": self.world_size, "transport": self.transport}
        return Worker(
            source, place=place, arena=self.arenas[rank], limits=self._limits, triton=b"triton" in source, device=own,
            spawn=spawn, more=order,
        )  # fmt: skip

    def wait_ready(self, *, limit_s: float) -> dict[str, Any]:
        """Wait until every rank sits in a verified sandbox and has met the others.

        Returns:
            The layers of rank 0; those of all ranks hold.

        Raises:
            JudgeError: The sandbox, or the transport, cannot be had here.
        """
        found = {rank: one.wait_ready(limit_s=limit_s) for rank, one in self.workers.items()}
        for layers in found.values():
            verdicts.require(layers)
        if self._warden is not None:
            self._warden.owned({rank: layers.get("sockets", []) for rank, layers in found.items()})
        return found[0]

    def ask(self, messages: Mapping[int, dict[str, Any]], *, limit_s: float, stall_s: float = 3.0) -> dict[int, Answer]:
        """Ask ranks at the same moment and wait for all of them, by one clock.

        When one fails, the others are told; who does not give up then is ended.

        Args:
            messages: Rank to message.
            limit_s: Seconds for all.
            stall_s: After so many seconds in which nothing was sent and no rank used the processor, all of them wait
                for one another, and are told so.

        Returns:
            Rank to what became of it.

        Raises:
            JudgeError: The judge itself cannot go on.
        """
        began = time.monotonic()
        asked = {
            rank: _Asking(self.workers[rank], message, limit_s + _GRACE_S + 1, began)
            for rank, message in messages.items()
        }
        given_up_at = self._watch(asked, began, limit_s, stall_s)
        killed: set[int] = set()
        if given_up_at is not None:
            self.switch.abort()
            deadline = time.monotonic() + _GRACE_S
            for rank, one in asked.items():
                if not one.over(max(0.0, deadline - time.monotonic())):
                    killed.add(rank)
                    self.workers[rank].stop()  # its channel stays open: a thread still reads from it
                    one.over(10)
        if fault := next((one.fault for one in asked.values() if one.fault is not None), None):
            raise fault
        if self.switch.fault is not None:
            raise JudgeError(f"the switch failed: {self.switch.fault!r}", "report this") from self.switch.fault
        late = {rank for rank, one in asked.items() if given_up_at is not None and one.seconds > given_up_at - began}
        return {
            # To be told makes a rank raise; it makes no process end.
            rank: Answer(one.reply, one.ended, one.seconds, rank in (late if one.ended is None else killed))
            for rank, one in asked.items()
        }

    def _watch(self, asked: Mapping[int, _Asking], began: float, limit_s: float, stall_s: float) -> float | None:
        """Wait until all are through, or until it is time to give up; returns that time then."""
        used, since = self.cpu_seconds(asked), time.monotonic()
        while not all(one.over() for one in asked.values()):
            if self.switch.broken or any(one.failed() for one in asked.values()):
                return time.monotonic()
            now = time.monotonic()
            if now - began > limit_s:
                return now
            if now - max(since, self.switch.heard) > stall_s:
                now_used = self.cpu_seconds(asked)
                if now_used - used < _IDLE_S:
                    return now
                used, since = now_used, now
            if under_way := [one for one in asked.values() if not one.over()]:  # none is, if the last ended just now
                under_way[0].over(_TICK_S)
        return None

    def cpu_seconds(self, ranks: Mapping[int, Any] | None = None) -> float:
        """Return the CPU time that ranks have used, all if none are named."""
        return sum(self.workers[rank].cpu_seconds() for rank in (self.workers if ranks is None else ranks))

    def begin(self) -> None:
        """Begin a round: nothing is under way, nothing counted, and windows hold noise."""
        self.switch.begin()
        if self._warden is not None:
            self._warden.begin()

    def finish(self) -> Traffic:
        """End a round and return what was moved in it."""
        traffic = self.switch.finish()
        if self._warden is not None:
            sent, received = self._warden.moved()
            beside = [("forged_protocol", "the switch was used beside the transport")] if traffic.messages else []
            traffic = Traffic(sent=sent, received=received, problems=[*traffic.problems, *beside])
        return traffic

    def end(self) -> None:
        """End all ranks, whatever they do."""
        enders = [threading.Thread(target=one.end, daemon=True) for one in self.workers.values()]
        for one in enders:
            one.start()
        for one in enders:
            one.join(timeout=20)
        self.switch.close()
        if self._warden is not None:
            with contextlib.suppress(OSError):
                self._warden.close()
        for arena in (*self.arenas.values(), *self._windows.values()):
            arena.close()
