"""The conversation with a ``workspace_plan`` strategy: offline, online, or with memory of its own."""

from typing import Any

from kb.validators.operators.allocation import FITTED, TIGHT, BlockTrace
from kb.validators.runtime.allocation.bench import (
    Bench,
    CaseFailedError,
    raise_failure,
    rounded_up,
    whole,
    wholes,
)
from kb.validators.runtime.allocation.ledger import Ledger
from kb.validators.runtime.allocation.stores import MESSAGE_BYTES, UNIT, ArenaStore, Contents, Store, WorkerStore
from kb.validators.runtime.errors import JudgeError

AMPLE, GRANULE = 8, 32 << 20
"""Memory that a strategy is given, as a multiple of the lower bound and so many bytes more: whoever runs out of it
wastes memory, also if it works in large pieces."""

ALIGNMENTS = (64, 256, 512, 4096)
_AUDITS = 6
"""How often, in one trace, every live block is read."""

_SLACK_BYTES, _SLACK = 24 << 20, 0.05
"""How far memory seen from outside may be from what is stated: so much and such a share."""

_TENSOR = {"plain": True, "dtype": "torch.uint8", "axes": 1, "contiguous": True}


class Blocks:
    """Serves traces of blocks to one strategy."""

    def __init__(self, bench: Bench, form: str) -> None:
        self.bench, self.form = bench, form
        self._largest: dict[int, int] = {}
        """Seed of a drawn trace to the memory it took."""

    def run(self, trace: BlockTrace, contents: str, seed: int) -> dict[str, Any]:
        """Serve one trace.

        Args:
            trace: The blocks.
            contents: What is asked, as in ``validators.operators.allocation``.
            seed: Of the case.

        Returns:
            Its figures; the operator's ``metrics`` say what they mean.

        Raises:
            CaseFailedError: The strategy did what it must not.
            WorkerEndedError: The worker is gone or too slow.
        """
        alignment = self.bench.dice.choice(ALIGNMENTS)
        if self.form == "run":
            return self._offline(trace, alignment)
        return self._online(trace, contents, seed, alignment)

    def _store(self, capacity: int, *, own: bool) -> Store:
        bench = self.bench
        if own or bench.device != "cpu":
            return WorkerStore(bench.worker, bench.arena, capacity=capacity, limit_s=bench.limit_s)
        if capacity > bench.arena.size_bytes - MESSAGE_BYTES:
            raise JudgeError(f"a trace needs {capacity >> 20} MiB", "judge fewer or smaller workloads")
        return ArenaStore(bench.arena)

    # offline

    def _offline(self, trace: BlockTrace, alignment: int) -> dict[str, Any]:
        bench, blocks = self.bench, trace.blocks
        bench.host.start()
        began = bench.clock()
        reply = bench.answered(
            "plan", sizes=[b.size for b in blocks], first_use=[b.first for b in blocks],
            last_use=[b.last for b in blocks], alignment=alignment,
        )  # fmt: skip
        seconds = bench.clock() - began
        offsets, total = wholes(reply, "offsets"), whole(reply, "total")
        host_bytes = bench.host_within(len(blocks))
        if len(offsets) != len(blocks):
            raise CaseFailedError("wrong_answer", f"{len(offsets)} offsets for {len(blocks)} blocks")
        if total > trace.total(alignment) * AMPLE:
            raise CaseFailedError("out_of_arena", f"an arena of {total} bytes for {trace.total(alignment)} in all")
        outside = self._open_buffer(total)
        self._replay(trace, offsets, Ledger(total, alignment), self._store(total, own=False))
        bench.answered("close")
        return self._figures(trace, alignment, total, host_bytes) | {
            "mode": "offline",
            "outside_bytes": outside,
            "us_per_operation": seconds / len(blocks) * 1e6,
        }

    def _open_buffer(self, size: int) -> int | None:
        """Have the worker take a device buffer; returns the growth seen from outside, None on the CPU."""
        gpu = self.bench.gpu
        if gpu is None:
            return None
        gpu.start()
        self.bench.answered("open", buffer_bytes=rounded_up(max(size, 1), 1 << 21))
        return gpu.look()

    def _replay(self, trace: BlockTrace, offsets: list[int], ledger: Ledger, store: Store) -> None:
        contents = Contents(store, self.bench.dice)
        events = list(trace.events())
        audits = self._audits(len(events))
        for number, (kind, index, _) in enumerate(events):
            if kind == "alloc":
                self._enter(ledger, contents, index, offsets[index], trace.blocks[index].size, 0)
            elif kind == "free":
                self._leave(ledger, contents, index, 0)
            if number in audits:
                _audit(ledger, contents)

    def _audits(self, events: int) -> set[int]:
        return {self.bench.dice.randrange(events) for _ in range(_AUDITS)}

    def _enter(self, ledger: Ledger, contents: Contents, index: int, offset: int, size: int, stream: int) -> None:
        problem = ledger.place(index, offset, size, stream)
        if problem is not None:
            raise CaseFailedError(*problem)
        contents.begin(index, offset, size)

    def _leave(self, ledger: Ledger, contents: Contents, index: int, stream: int) -> None:
        if not contents.intact(index):
            raise CaseFailedError("lost_contents", f"block {index} changed while it was live")
        contents.end(index)
        ledger.free(index, stream)

    # online

    def _online(self, trace: BlockTrace, contents: str, seed: int, alignment: int) -> dict[str, Any]:
        bench = self.bench
        bound = trace.live_peak(alignment)
        capacity = AMPLE * bound + GRANULE
        if contents == TIGHT:
            capacity = int(bound * bench.dice.uniform(0.45, 0.85))
        elif contents == FITTED:
            capacity = self._largest[seed]
        capacity = rounded_up(max(capacity, alignment), alignment)
        session = Online(self, trace, alignment, capacity, tight=contents in (TIGHT, FITTED))
        found = session.run()
        if contents == FITTED:
            return {"mode": "fitted", "served": not session.refused, "outside_bytes": found["outside_bytes"]}
        if contents == TIGHT:
            return {"mode": "tight", "refused": len(session.refused), "capacity_bytes": capacity}
        touched, highest = session.ledger.touched_bytes(), session.ledger.highest()
        # A strategy that uses both ends of its memory needs no more than what it touched.
        self._largest[seed] = touched if highest > 2 * touched else highest
        return found

    def _figures(self, trace: BlockTrace, alignment: int, peak: int, host_bytes: int) -> dict[str, Any]:
        live = trace.live_peak(alignment)
        return {
            "alignment": alignment,
            "allocations": len(trace.blocks),
            "live_bytes": live,
            "peak_bytes": peak,
            "fragmentation": peak / live if live else None,
            "host_bytes": host_bytes,
        }


class Online:
    """One trace, one call at a time: a strategy cannot see what comes."""

    def __init__(self, blocks: Blocks, trace: BlockTrace, alignment: int, capacity: int, *, tight: bool) -> None:
        self.blocks, self.bench, self.trace = blocks, blocks.bench, trace
        self.alignment, self.capacity, self.tight = alignment, capacity, tight
        self.own = blocks.form == "DeviceAllocator"
        self.streams = 1 + max((max(b.stream, b.user) for b in trace.blocks), default=0)
        self.ledger = Ledger(None if self.own else capacity, alignment, self.streams)
        self.contents = Contents(blocks._store(capacity, own=self.own), self.bench.dice)
        self.refused: set[int] = set()
        self.outside: int | None = None
        self.stated = 0
        self._meter = self.bench.gpu or self.bench.host

    def run(self) -> dict[str, Any]:
        """Serve the trace and return its figures."""
        bench, trace = self.bench, self.trace
        probe = max((b.size for b in trace.blocks if b.size <= self.capacity // 4), default=1)
        bench.answered("close")  # what the last trace left must not be missed in this one
        bench.host.start()
        if bench.gpu is not None:
            bench.gpu.start()
        self._open()
        # On a fresh allocator a probe would leave its trace in the figures of one that keeps what it was given back.
        fresh = (self.own or self.tight) and self._probe(probe)
        operations = self._serve()
        figures = self._close(operations)
        for other in range(1, self.streams):  # what other streams freed is free for the first one only after these
            bench.answered("wait", stream=0, on=other)
        if fresh and not self._probe(probe):
            raise CaseFailedError(
                "bad_out_of_memory", f"{probe} bytes were there at first and are not after all is freed"
            )
        bench.answered("close")
        return figures | {"mode": "own" if self.own else "online", "operations": operations}

    def _open(self) -> None:
        arguments: dict[str, Any] = {"capacity_bytes": self.capacity, "alignment": self.alignment}
        if self.own:
            kind = self.bench.device.partition(":")[0]
            arguments = {"device": kind, "limit_bytes": self.capacity, "alignment": self.alignment}
        buffer = 0 if self.own else rounded_up(self.capacity, 1 << 21)
        self.bench.answered("open", form=self.blocks.form, arguments=arguments, buffer_bytes=buffer)
        if self.bench.gpu is not None and not self.own:
            self.outside = self.bench.gpu.look()

    def _probe(self, size: int) -> bool:
        """Take and give back one block; tells whether it was there."""
        reply = self.bench.ask("alloc", index=-1, size=size, stream=0)
        if "out_of_memory" in reply:
            return False
        raise_failure(reply, "crashed", "alloc")
        self.bench.answered("free", index=-1, stream=0)
        return True

    def _serve(self) -> int:
        events = list(self.trace.events())
        audits = self.blocks._audits(len(events))
        for number, (kind, first, second) in enumerate(events):
            if kind == "wait":
                self.bench.answered("wait", stream=first, on=second)
                self.ledger.wait(first, second)
            elif kind == "alloc":
                self._alloc(first)
            elif first not in self.refused:
                block = self.trace.blocks[first]
                self.blocks._leave(self.ledger, self.contents, first, block.user)
                self.bench.answered("free", index=first, stream=block.user)
            if number in audits:
                _audit(self.ledger, self.contents)
        return len(events)

    def _alloc(self, index: int) -> None:
        block = self.trace.blocks[index]
        reply = self.bench.ask("alloc", index=index, size=block.size, stream=block.stream)
        if "out_of_memory" in reply:
            # In too little memory anything may be refused, unless nothing else is there and most of it is free.
            roomy = not self.ledger.live_bytes and block.size * AMPLE + GRANULE <= self.capacity
            if roomy or not self.tight:
                words = f"{block.size} bytes beside {self.ledger.live_bytes} live ones, of {self.capacity}"
                raise CaseFailedError("refused_early", words)
            self.refused.add(index)
            return
        raise_failure(reply, "bad_out_of_memory" if self.tight else "crashed", f"alloc of {block.size} bytes")
        if self.own:
            self._enter_own(index, reply)
        elif "tensor" in reply:
            raise CaseFailedError("wrong_place", f"block {index} is a tensor, not an offset")
        else:
            self.blocks._enter(self.ledger, self.contents, index, whole(reply, "offset"), block.size, block.stream)

    def _enter_own(self, index: int, reply: dict[str, Any]) -> None:
        block, tensor = self.trace.blocks[index], reply.get("tensor")
        if not isinstance(tensor, dict):
            raise CaseFailedError("wrong_place", f"block {index} is no tensor")
        if tensor.get("device") != self.bench.device.partition(":")[0]:
            raise CaseFailedError("wrong_place", f"block {index} is on {str(tensor.get('device'))[:20]}")
        if {name: tensor.get(name) for name in _TENSOR} != _TENSOR or whole(tensor, "size") < block.size:
            raise CaseFailedError("wrong_answer", f"block {index} is no plain tensor of {block.size} bytes")
        problem = self.ledger.place(index, whole(tensor, "address"), block.size, block.stream)
        if problem is not None:
            raise CaseFailedError(*problem)
        self.bench.answered("touch", index=index, byte=self.bench.dice.randrange(256))
        self.contents.begin(index, 0, block.size // UNIT * UNIT, own=True)
        self._compare_with_outside(whole(reply, "reserved"))

    def _compare_with_outside(self, reserved: int) -> None:
        live = self.ledger.live_bytes
        self.stated = max(self.stated, reserved)
        if reserved < live:
            raise CaseFailedError("memory_outside_meter", f"{reserved} bytes are stated while {live} are live")
        if reserved > self.capacity:
            raise CaseFailedError("over_budget", f"{reserved} bytes are held, {self.capacity} were allowed")
        if live == self.ledger.live_peak and self._meter.look() + _slack(live) < live:
            raise CaseFailedError(
                "memory_not_there", f"{live} bytes are live, {self._meter.look()} are seen from outside"
            )

    def _close(self, operations: int) -> dict[str, Any]:
        bench = self.bench
        peak = self.ledger.touched_bytes()
        if self.own:
            peak = self.stated
            self.outside = self._meter.peak()
            if self.outside > self.stated + _slack(self.stated):
                words = f"{self.outside >> 20} MiB are seen from outside, {self.stated >> 20} MiB are stated"
                raise CaseFailedError("memory_outside_meter", words)
        host = bench.host.peak() if self.own and bench.gpu is None else bench.host_within(operations)
        return self.blocks._figures(self.trace, self.alignment, peak, host) | {
            "outside_bytes": self.outside,
            "driver_allocations": None if self.own else 1,
        }


def _slack(size: int) -> int:
    return _SLACK_BYTES + int(size * _SLACK)


def _audit(ledger: Ledger, contents: Contents) -> None:
    for index in ledger.live:
        if not contents.intact(index):
            raise CaseFailedError("lost_contents", f"block {index} changed while it was live")
