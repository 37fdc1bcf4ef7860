"""The conversation with a ``kv_block_pool`` strategy: a serving loop that keeps memory full and sequences apart."""

import bisect
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from kb.validators.operators.allocation import Request, ServingTrace
from kb.validators.runtime.allocation.bench import Bench, CaseFailedError, raise_failure, whole, wholes
from kb.validators.runtime.allocation.stores import UNIT, Store
from kb.validators.runtime.allocation.tokens import Sequence, Tokens

_WHOLE_TOKENS = 2048
"""Sequences up to this length are read whole."""

_STEPS = 20_000
"""A serving loop that takes longer does not come to an end."""


@dataclass
class Answer:
    """What a pool says after a call."""

    table: list[int]
    slot: int | None
    found: int = 0
    copies: list[int] = field(default_factory=list)
    """Flat triples (source, target, size)."""


class Client(Protocol):
    """A pool: the worker's, or a trusted one in this process. None stands for MemoryError."""

    page_tokens: int

    def admit(self, number: int, tokens: int, keys: tuple[int, ...]) -> Answer | None:
        """Take a new sequence in."""

    def append(self, number: int, tokens: int) -> Answer | None:
        """Make room for more tokens of a sequence."""

    def fork(self, parent: int, child: int) -> Answer | None:
        """Make a copy of a sequence."""

    def release(self, number: int) -> None:
        """Give all of a sequence back."""


class WorkerPool:
    """The pool of the candidate."""

    def __init__(self, bench: Bench, trace: ServingTrace) -> None:
        self._bench = bench
        self.calls: list[tuple[int, int, int]] = []
        """Code, and two operands of each call that was granted: what a batch repeats."""
        self.keys: dict[str, list[int]] = {}
        arguments = {
            "capacity_bytes": trace.capacity_bytes, "token_bytes": trace.token_bytes, "slot_bytes": trace.slot_bytes,
            "max_tokens": trace.max_tokens,
        }  # fmt: skip
        buffer = 0 if bench.device == "cpu" else trace.capacity_bytes
        reply = bench.answered("open", form="Pool", arguments=arguments, buffer_bytes=buffer)
        self.page_tokens = whole(reply, "page_tokens")
        if not 1 <= self.page_tokens <= 1 << 30:
            raise CaseFailedError("wrong_answer", "page_tokens is no positive number")

    def _call(self, op: str, code: int, first: int, second: int, **message: Any) -> Answer | None:  # noqa: ANN401
        reply = self._bench.ask(op, **message)
        if "out_of_memory" in reply:
            return None
        raise_failure(reply, "crashed", op)
        self.calls.append((code, first, second))
        slot = None if reply.get("slot") is None else whole(reply, "slot")
        found = whole(reply, "found") if op == "admit" else 0
        return Answer(wholes(reply, "table"), slot, found, wholes(reply, "copies"))

    def admit(self, number: int, tokens: int, keys: tuple[int, ...]) -> Answer | None:
        """Ask the candidate to take a sequence in."""
        self.keys[str(number)] = list(keys)
        return self._call("admit", 3, number, tokens, request=number, tokens=tokens, keys=list(keys))

    def append(self, number: int, tokens: int) -> Answer | None:
        """Ask the candidate for more room."""
        return self._call("append", 4, number, tokens, request=number, tokens=tokens)

    def fork(self, parent: int, child: int) -> Answer | None:
        """Ask the candidate for a copy."""
        return self._call("fork", 5, parent, child, parent=parent, request=child)

    def release(self, number: int) -> None:
        """Tell the candidate that a sequence has ended."""
        self._bench.answered("release", request=number)
        self.calls.append((6, number, 0))


class Uses:
    """Which pages and slots are in use; no two of them may meet."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count: Counter[tuple[int, int]] = Counter()
        self._sorted: list[tuple[int, int]] = []
        self.bytes = 0

    def take(self, start: int, size: int, *, shared: bool) -> None:
        """Count a page or slot as used once more.

        Raises:
            CaseFailedError: It lies outside, or meets another one.
        """
        span = (start, start + size)
        if span in self._count and shared:
            self._count[span] += 1
            return
        if start < 0 or span[1] > self._capacity:
            raise CaseFailedError("out_of_arena", f"bytes {start} to {span[1]} of {self._capacity}")
        if start % UNIT:
            raise CaseFailedError("misaligned", f"offset {start} is no multiple of {UNIT}")
        where = bisect.bisect_left(self._sorted, span)
        for other in self._sorted[max(0, where - 1) : where + 1]:
            if other[0] < span[1] and start < other[1]:
                raise CaseFailedError("overlapping_blocks", f"bytes {start} to {span[1]} meet {other[0]} to {other[1]}")
        self._sorted.insert(where, span)
        self._count[span] = 1
        self.bytes += size

    def give(self, start: int, size: int) -> None:
        """Count a page or slot as used once less."""
        span = (start, start + size)
        self._count[span] -= 1
        if not self._count[span]:
            del self._count[span]
            self._sorted.remove(span)
            self.bytes -= size


class Serving:
    """One trace through one pool.

    Args:
        trace: The requests.
        pool: Who hands out pages.
        store: Where tokens are written; None to keep the books only.
        bench: For dice; None for a trusted pool.
    """

    def __init__(self, trace: ServingTrace, pool: Client, store: Store | None, bench: Bench | None) -> None:
        self.trace, self.pool, self.store, self.bench = trace, pool, store, bench
        self.tokens = Tokens(trace.token_bytes, trace.slot_bytes)
        self.uses = Uses(trace.capacity_bytes)
        self.running: list[Sequence] = []
        self._numbers = 0
        self._states = 0
        self.figures: dict[str, Any] = {
            "full_at": None, "peak_bytes": 0, "live_bytes": 0, "computed_tokens": 0, "preemptions": 0, "steps": 0,
        }  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Serve all requests and return the figures.

        Raises:
            CaseFailedError: The pool did what it must not.
        """
        coming = deque(sorted(self.trace.requests, key=lambda one: one.arrival))
        waiting: deque[Request] = deque()
        step = 0
        while coming or waiting or self.running:
            while coming and coming[0].arrival <= step:
                waiting.append(coming.popleft())
            self._admit(waiting)
            self._decode(waiting)
            self._look_around()
            step += 1
            if step > _STEPS:
                raise CaseFailedError("refused_early", f"not all was served in {_STEPS} steps")
        self.figures["steps"] = step
        peak, live = self.figures["peak_bytes"], self.figures["live_bytes"]
        self.figures["fragmentation"] = peak / live if live else None
        return self.figures

    def _admit(self, waiting: deque[Request]) -> None:
        while waiting:
            request = waiting[0]
            sequence = Sequence(self._number(), request, request.prompt, request.output)
            keys = request.keys if not self.trace.slot_bytes else ()
            answer = self.pool.admit(sequence.number, request.prompt, keys)
            if answer is None:
                self._full(request.prompt)
                return
            waiting.popleft()
            if not 0 <= answer.found <= min(request.prompt, len(keys) * 16):
                raise CaseFailedError("wrong_answer", f"{answer.found} tokens found of {request.prompt}")
            self.tokens.slots += 1 if self.trace.slot_bytes else 0
            self._settle(sequence, answer, new=range(request.prompt))
            self.figures["computed_tokens"] += request.prompt - answer.found
            self._expect(sequence, range(answer.found), "found in the prefix")
            self._write(sequence, range(answer.found, request.prompt))
            self._write_state(sequence)
            self.running.append(sequence)
            for _ in range(request.forks):
                self._fork(sequence)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _full(self, tokens: int) -> None:
        if self.figures["full_at"] is None:
            self.figures["full_at"] = self.tokens.live_bytes() / self.trace.capacity_bytes
        if not self.running:
            raise CaseFailedError("refused_early", f"{tokens} tokens are refused while nothing is running")

    def _fork(self, parent: Sequence) -> None:
        child = Sequence(self._number(), parent.request, parent.tokens, parent.left, parent.tokens, parent)
        answer = self.pool.fork(parent.number, child.number)
        if answer is None:
            self._full(0)
            return
        self._copy(answer)
        self.tokens.slots += 1 if self.trace.slot_bytes else 0
        child.state = parent.state
        self._settle(child, answer, new=range(child.tokens))
        self._whole(child)
        self._whole(parent)
        self.running.append(child)

    def _decode(self, waiting: deque[Request]) -> None:
        for sequence in list(self.running):
            if sequence not in self.running:
                continue
            while (answer := self.pool.append(sequence.number, 1)) is None:
                self._full(1)
                if len(self.running) == 1:
                    raise CaseFailedError("refused_early", "the only sequence there is finds no room to grow")
                victim = self.running[-1]
                self.figures["preemptions"] += 1
                self._end(victim)
                if victim.parent is None:
                    waiting.appendleft(victim.request)
                if victim is sequence:
                    break
            if answer is None:
                continue
            self._copy(answer)
            sequence.tokens += 1
            sequence.left -= 1
            self._settle(sequence, answer, new=range(sequence.tokens - 1, sequence.tokens))
            self._write(sequence, range(sequence.tokens - 1, sequence.tokens))
            if sequence.left % 4 == 0:
                self._write_state(sequence)
            if sequence.left <= 0:
                self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        self._whole(sequence)
        self.running.remove(sequence)
        self.pool.release(sequence.number)
        self.tokens.vanish(sequence)
        for page in sequence.table:
            self.uses.give(page, self._page_bytes())
        if sequence.slot is not None:
            self.uses.give(sequence.slot, self.trace.slot_bytes)
            self.tokens.slots -= 1

    def _page_bytes(self) -> int:
        return self.pool.page_tokens * self.trace.token_bytes

    def _settle(self, sequence: Sequence, answer: Answer, *, new: range) -> None:
        """Take over a sequence's table as it is now."""
        if len(answer.table) * self.pool.page_tokens < sequence.tokens:
            raise CaseFailedError("wrong_answer", f"{len(answer.table)} pages for {sequence.tokens} tokens")
        if (answer.slot is None) != (self.trace.slot_bytes == 0):
            raise CaseFailedError("wrong_answer", "a state slot is missing, or there is one that nobody asked for")
        before, after = Counter(sequence.table), Counter(answer.table)
        if any(count > 1 for count in after.values()):
            raise CaseFailedError("overlapping_blocks", "a page stands twice in one table")
        for page in after - before:
            self.uses.take(page, self._page_bytes(), shared=True)
        for page in before - after:
            self.uses.give(page, self._page_bytes())
        if answer.slot != sequence.slot and answer.slot is not None:
            self.uses.take(answer.slot, self.trace.slot_bytes, shared=False)
            if sequence.slot is not None:
                self.uses.give(sequence.slot, self.trace.slot_bytes)
        sequence.table, sequence.slot = answer.table, answer.slot
        self.tokens.appear(sequence, new)
        if self.uses.bytes > self.figures["peak_bytes"]:
            self.figures["peak_bytes"], self.figures["live_bytes"] = self.uses.bytes, self.tokens.live_bytes()

    # contents

    def _copy(self, answer: Answer) -> None:
        if self.store is None:
            return
        copies = answer.copies
        for source, target, size in zip(copies[::3], copies[1::3], copies[2::3], strict=True):
            if min(source, target, size) < 0 or max(source, target) + size > self.trace.capacity_bytes:
                raise CaseFailedError("out_of_arena", f"a copy of {size} bytes from {source} to {target}")
            self.store.copy(source, target, size)

    def _write(self, sequence: Sequence, positions: range) -> None:
        if self.store is not None and positions:
            self.store.write(*self.tokens.contents(sequence, positions, self.pool.page_tokens))

    def _write_state(self, sequence: Sequence) -> None:
        if self.store is not None and sequence.slot is not None:
            self._states += 1
            sequence.state = self._states
            self.store.write(*self.tokens.state(sequence))

    def _expect(self, sequence: Sequence, positions: range | list[int], where: str) -> None:
        if self.store is None or not positions:
            return
        numbers, data = self.tokens.contents(sequence, positions, self.pool.page_tokens)
        if not (self.store.read(numbers) == data).all():
            raise CaseFailedError("lost_contents", f"tokens of sequence {sequence.number} are not there: {where}")

    def _whole(self, sequence: Sequence) -> None:
        """Read a sequence's tokens, of a long one both ends and a sample, and its state."""
        if sequence.tokens <= _WHOLE_TOKENS or self.bench is None:
            self._expect(sequence, range(sequence.tokens), "while it was running")
        else:
            middle = self.bench.dice.sample(range(sequence.tokens), _WHOLE_TOKENS // 2)
            ends = [*range(64), *range(sequence.tokens - 64, sequence.tokens)]
            self._expect(sequence, [*ends, *middle], "while it was running")
        if self.store is not None and sequence.slot is not None:
            numbers, data = self.tokens.state(sequence)
            if not (self.store.read(numbers) == data).all():
                raise CaseFailedError("lost_contents", f"the state of sequence {sequence.number} is not there")

    def _look_around(self) -> None:
        if self.bench is not None and self.running and self.bench.dice.random() < 0.3:
            self._whole(self.bench.dice.choice(self.running))


def room_for(pool: Client, tokens: int) -> int:
    """Return how many sequences of so many tokens an empty pool takes, and give them back."""
    taken: list[int] = []
    number = -1
    while len(taken) < 10_000 and pool.admit(number, tokens, ()) is not None:
        taken.append(number)
        number -= 1
    for one in taken:
        pool.release(one)
    return len(taken)
