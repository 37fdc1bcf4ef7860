"""One side of a comparison: a sandboxed worker that runs batches of calls, timed here from outside.

The clock of this module is the first of three and cannot be forged: it starts before the mark that sets a batch off and
stops when the worker's answer is seen, with the device idle on both sides. On a CPU the worker is stopped while new
contents are written into the memory that its tensors look at, and goes on only once the clock runs: nothing can be
computed ahead. On a GPU the worker itself uploads them, before the clock runs; the replaced slots (see ``clocks``) are
what shows work ahead there.
"""

import os
import secrets
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kb.validators.operators.spec import Operator, Workload
from kb.validators.runtime import accelerator, building, processes, replies, report, sandbox
from kb.validators.runtime.arena import Arena, aligned
from kb.validators.runtime.batches import Batch, Clocked
from kb.validators.runtime.clocks import DONE_AT, MARK_BYTES
from kb.validators.runtime.commitment import Commitment, new_key
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.layout import Edits, Layout
from kb.validators.runtime.scrutiny import Result
from kb.validators.runtime.verdicts import MILD, require
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

ARENA_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}
"""Shared memory of one side; only touched pages cost anything."""

_MARKS_BYTES = 4096
_LOAD_AT_ONCE, _HAND_AT_ONCE = 1024, 512
"""Tensors and calls of one message: none may grow beyond what the protocol admits."""

_BRING_BYTES = 256 << 20
"""Most of the shared memory that contents on their way to a GPU take at once: what was touched stays taken."""

_BATCH_LIMIT_S = 20.0
"""Longest timed batch on a GPU: everybody waits for it."""

_SPINS = 256
"""Looks at the shared memory between two looks at the channel."""


class FailedError(Exception):
    """The candidate failed in a timed batch; ``reason`` is a code of ``report.REASONS``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Side:
    """One worker with its shared memory."""

    def __init__(
        self,
        source: bytes,
        *,
        place: Workplace,
        device: str = accelerator.CPU,
        memory_bytes: int = 4 << 30,
        limit_s: float = 60.0,
    ) -> None:
        """Start the process; ``start`` waits for it.

        Args:
            source: A candidate's or a baseline's file.
            place: Where the worker's folders go.
            device: ``cpu`` or ``cuda:N``.
            memory_bytes: Most resident memory.
            limit_s: Longest time for one answer.
        """
        self.kind = device.partition(":")[0]
        self.limit_s = limit_s
        self.arena = Arena(ARENA_BYTES[self.kind])
        self.worker = Worker(
            source, place=place, arena=self.arena, limits=sandbox.limits_for(device, memory_bytes=memory_bytes),
            triton=b"triton" in source, device=device,
        )  # fmt: skip
        self._layout = Layout((), slots=0, moving=(), shared=())
        self._output_at = 0
        self._output_bytes = 0
        self._stopped: list[int] = []
        self._junk = np.zeros(0, np.uint8)
        self._tint = 0
        self.commits = self.kind != accelerator.CPU
        """Whether results are answered for after a batch; on a CPU some are handed over at once, which is as quick."""
        self.commitment: Commitment | None = None
        """What was answered after the last batch."""

    def start(self, operator: Operator, workloads: Sequence[Workload], *, load_limit_s: float = 120.0) -> None:
        """Wait for the sandbox, load the source, and have kernels built.

        Raises:
            FailedError: The source cannot be loaded or its first calls fail.
            WorkerEndedError: The worker ended.
            JudgeError: There is no sandbox here.
        """
        require(self.worker.wait_ready(limit_s=90))
        if self.kind != accelerator.CPU:
            building.open_step(self.worker)
        failed = replies.failure(self.worker.ask({"op": "load"}, limit_s=load_limit_s))
        if failed is not None:
            raise FailedError("build_failed", failed)
        if self.kind != accelerator.CPU:
            failed = building.warm_up(self.worker, self.arena, operator, workloads, limit_s=load_limit_s)
            self.worker.close_build(forgive=MILD)
            if failed is not None:
                raise FailedError("crashed", f"{failed} (while building)")
            self.release()  # what calls one at a time took would stay taken while others run

    def end(self) -> None:
        """End the worker and give its memory back."""
        self.wake()
        self.worker.end()
        self.arena.close()

    def said(self) -> str:
        """Return the last that the worker printed, for a note; empty if it was nothing. Waits for it a little."""
        deadline = time.monotonic() + 0.5
        time.sleep(0.05)
        while not self.worker.output().strip() and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = [line for line in self.worker.output().splitlines() if line.strip(" ^~")]
        return f"; it said: {report.escaped(' | '.join(lines)[-900:], 1000)}" if lines else ""

    def rest(self) -> None:
        """Stop all processes of the worker, and see to it that they stand still."""
        pids = self.worker.pids()
        self._stopped = pids[1:] or pids
        processes.send_signal(self._stopped, signal.SIGSTOP)
        deadline = time.monotonic() + 1.0
        while not (still := all(processes.still(pid) for pid in self._stopped)) and time.monotonic() < deadline:
            pass
        self.worker.stands_still = still

    def wake(self) -> None:
        """Let the worker's processes go on."""
        self.worker.stands_still = False
        processes.send_signal(self._stopped, signal.SIGCONT)
        self._stopped = []

    def lay(self, layout: Layout) -> None:
        """Give every slot and every spare its place, and bring the arguments that do not change.

        Raises:
            JudgeError: They do not fit into the shared memory.
        """
        self.wake()
        self._layout = layout
        room = self.arena.size_bytes - _MARKS_BYTES
        # On a GPU the arena is only passed through: half of it takes inputs, half outputs, whatever they add up to.
        self._output_at = layout.size_bytes if self.kind == accelerator.CPU else room // 2
        if self._output_at > room // 2:
            raise JudgeError(f"the inputs need {layout.size_bytes >> 20} MiB", "time smaller workloads")
        self._output_bytes = room - self._output_at
        for message in layout.messages():
            self._ask(message)
        self._bring(layout.lasting())
        if layout.sources:
            self._derive(lasting=True)

    def release(self) -> None:
        """Have the memory of all slots and spares given back, until the next ones are laid out."""
        self.wake()
        self._ask({"op": "lay", "clear": True, "moving": [], "slots": [], "spares": []})
        self.rest()

    def capture(self, batch: Batch) -> str | None:
        """Have a graph made of the batch's calls; returns what the candidate raised, None if it went well."""
        self.wake()
        message = {"op": "capture", "order": list(batch.order), "swaps": [list(one) for one in batch.swaps]}
        return replies.failure(self.worker.ask(message, limit_s=self.limit_s))

    def time(
        self, contents: Sequence[Sequence[bytes]], batch: Batch, *, picks: Sequence[int], edits: Edits = ()
    ) -> Clocked:
        """Run one batch on new contents.

        Args:
            contents: For every slot and spare the bytes of its moving tensors, in order; nothing for a slot that is a
                copy of another one.
            batch: What to call.
            edits: Slots that are copies, and what is changed in each.
            picks: Calls whose outputs are answered for at once; ``outputs`` brings all.

        Raises:
            FailedError: A call raised, or the answer is none.
            WorkerEndedError: The worker ended or was too slow.
        """
        cpu = self.kind == accelerator.CPU
        self.wake()
        moving = self._layout.moving
        rows = [(k, i, data) for k, one in enumerate(contents) if one for i, data in zip(moving, one, strict=True)]
        if not cpu:
            self._bring(rows)
            self._change(edits)
        mark = secrets.token_bytes(MARK_BYTES)
        place = self.arena.size_bytes - _MARKS_BYTES
        self.arena.write(place, bytes(_MARKS_BYTES))
        began = time.perf_counter()
        ticket = self._arm(batch, place, mark)
        ready_us = (time.perf_counter() - began) * 1e6
        if cpu:
            self.rest()
            self._bring(rows)
            self._change(edits)
            self._sweep(batch.sweep_bytes)
        self.worker.calm(self.limit_s)
        wall_us = self._run(place, mark, patient=cpu)
        reply = self.worker.collect(ticket, limit_s=self.limit_s)
        self.worker.calm(0)
        failed = replies.failure(reply)
        if failed is not None:
            raise FailedError("crashed", f"{failed} (in a timed batch)")
        tail_us = self._answered_for(picks) if picks else 0.0
        return Clocked(wall_us, replies.reading(reply.get("device_us")), tail_us, None if cpu else ready_us)

    def _answered_for(self, picks: Sequence[int]) -> float:
        """Have some results answered for, or handed over, right after the batch; returns the microseconds."""
        key = new_key() if self.commits else b""
        self.arena.write(self._output_at, key)
        message = {"op": "commit" if self.commits else "outputs_of", "calls": list(picks), "offset": self._output_at}
        began = time.perf_counter()
        reply = self._ask(message)
        tail_us = (time.perf_counter() - began) * 1e6
        if self.commits:
            self.commitment = Commitment(key, _read(lambda: dict(zip(picks, replies.numbers(reply), strict=True))))
        return tail_us

    def _arm(self, batch: Batch, place: int, mark: bytes) -> str:
        message = {
            "op": "batch", "order": list(batch.order), "swaps": [list(one) for one in batch.swaps],
            "launch": batch.launch, "sweep": batch.sweep_bytes, "touch": batch.touch, "go": place, "mark": mark.hex(),
        }  # fmt: skip
        ticket = self.worker.post(message, limit_s=self.limit_s)
        reply = self.worker.collect(ticket, limit_s=self.limit_s)
        failed = replies.failure(reply)
        if failed is not None:
            raise FailedError("crashed", f"{failed} (before a timed batch)")
        if reply.get("armed") is not True:
            raise FailedError("forged_protocol", "an answer to a batch that was not set off")
        return ticket

    def _run(self, place: int, mark: bytes, *, patient: bool) -> float:
        """Set the batch off and wait for its end; returns microseconds by this clock."""
        memory, channel, pids = self.arena.memory, self.worker.channel, self._stopped
        end = place + DONE_AT
        limit_s = self.limit_s if patient else min(self.limit_s, _BATCH_LIMIT_S)
        deadline = time.monotonic() + limit_s
        self.worker.stands_still = False
        began = time.perf_counter()
        memory[place : place + MARK_BYTES] = mark
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        if patient:
            # The worker needs the processor: wait for its answer on the channel, which follows its mark.
            select.select([channel], [], [], self.limit_s)
            ended = time.perf_counter()
        else:
            spins = 0
            while memory[end : end + MARK_BYTES] != mark:
                spins += 1
                if spins % _SPINS == 0 and select.select([channel], [], [], 0)[0]:
                    break
                if spins % _SPINS == 0 and time.monotonic() > deadline:
                    raise WorkerEndedError("timed_out", f"a timed batch took more than {limit_s:g} s")
            ended = time.perf_counter()
        self._stopped = []
        return (ended - began) * 1e6

    def _sweep(self, size: int) -> None:
        """Write so many bytes, which drives everything else out of the cache that all cores share."""
        if size and self._junk.size != size:
            self._junk = np.zeros(size, np.uint8)
        self._tint = (self._tint + 1) % 256
        self._junk[:size].fill(self._tint)

    def _bring(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Bring contents to where they belong: (slot, argument, bytes)."""
        if self.kind == accelerator.CPU:
            for number, index, data in rows:
                self.arena.write(self._layout.places[number][index].offset, data)
            return
        waiting: list[dict[str, Any]] = []
        offset = 0
        for number, index, data in rows:
            if waiting and (offset + len(data) > _BRING_BYTES or len(waiting) >= _LOAD_AT_ONCE):
                self._ask({"op": "reload", "arguments": waiting})
                waiting, offset = [], 0
            given = self._layout.given(number, index)
            given["tensor"]["offset"] = offset
            self.arena.write(offset, data)
            waiting.append(given)
            offset = aligned(offset + len(data))
        if waiting:
            self._ask({"op": "reload", "arguments": waiting})

    def _derive(self, *, lasting: bool) -> None:
        """Have the slots that are copies copied: arguments that do not change, or those that do."""
        if self.kind != accelerator.CPU:
            self._ask({"op": "derive", "lasting": lasting})
            return
        moving = self._layout.moving
        for slot, source in self._layout.sources.items():
            for index, place in self._layout.places[slot].items():
                if (index not in moving) == lasting:
                    origin = self._layout.places[source][index]
                    self.arena.write(place.offset, self.arena.read(origin.offset, origin.size_bytes))

    def _change(self, edits: Edits) -> None:
        """Fill the slots that are copies, and change single elements of them."""
        if not edits:
            return
        self._derive(lasting=False)
        rows: list[list[int]] = []
        packed = bytearray()
        for number, edit in edits:
            data = edit.data
            if self.kind == accelerator.CPU:
                self.arena.write(self._layout.places[number][edit.index].offset + edit.offset, data)
            else:
                rows.append([number, self._layout.moving.index(edit.index), edit.offset, len(data), len(packed)])
                packed += data
        self.arena.write(0, bytes(packed))
        for at in range(0, len(rows), _LOAD_AT_ONCE):
            self._ask({"op": "edit", "rows": rows[at : at + _LOAD_AT_ONCE]})

    def outputs(self, calls: Sequence[int]) -> dict[int, Result]:
        """Return what calls of the last batch returned, by their positions in it.

        Raises:
            FailedError: The answer has another form.
        """
        found: dict[int, Result] = {}
        at_once = 1
        while len(found) < len(calls):
            wanted = list(calls[len(found) : len(found) + at_once])
            reply = self._ask({"op": "outputs_of", "calls": wanted, "offset": self._output_at})
            found |= zip(wanted, self._handed(reply, wanted), strict=True)
            at_once = max(1, min(_HAND_AT_ONCE, self._output_bytes // max(found[calls[0]].size_bytes, 1)))
        return found

    def _handed(self, reply: dict[str, Any], wanted: Sequence[int]) -> list[Result]:
        raw = reply.get("calls")
        if not isinstance(raw, list) or len(raw) != len(wanted):
            raise FailedError("forged_protocol", "other calls than were asked for")
        found: list[Result] = _read(lambda: [self._result(replies.claims({"outputs": one})) for one in raw])
        return found

    def _result(self, claims: Sequence[replies.Claim]) -> Result:
        return Result(tuple(claims), tuple(self.arena.read(c.offset, c.size_bytes) for c in claims))

    def inputs_intact(self, contents: Mapping[int, Sequence[bytes]], numbers: Sequence[int]) -> bool:
        """Tell whether the moving arguments of some slots are still what was brought.

        Args:
            contents: For each of these slots, and maybe others, the bytes of its moving tensors as they were brought.
            numbers: Slots whose contents were not replaced.
        """
        for number in numbers:
            asked, offset = [], 0
            for index in self._layout.moving:
                given = self._layout.given(number, index)
                if self.kind != accelerator.CPU:
                    given["tensor"]["offset"] = offset
                    offset = aligned(offset + given["tensor"]["size_bytes"])
                asked.append(given)
            self._ask({"op": "inputs", "arguments": asked})
            for given, data in zip(asked, contents[number], strict=True):
                if self.arena.read(given["tensor"]["offset"], len(data)) != data:
                    return False
        return True

    def changed(self) -> list[str]:
        """Name what the worker says changed of its process-wide state."""
        self.wake()
        found: list[str] = _read(lambda: replies.names(self._ask({"op": "state"}), "changed"))
        return found

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        reply = self.worker.ask(message, limit_s=self.limit_s)
        failed = replies.failure(reply)
        if failed is not None:
            raise FailedError("crashed", failed)
        return reply


def _read(reading: Callable[[], Any]) -> Any:  # noqa: ANN401 - what is read
    """Read a reply; raises FailedError if it has not the form that the stub gives it."""
    try:
        return reading()
    except (replies.ForgedReplyError, ValueError) as error:
        raise FailedError("forged_protocol", str(error)) from error
