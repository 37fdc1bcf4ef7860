"""The types an allocation spec is made of: contracts, traces, and what is measured on them.

An allocation operator says what a strategy is asked for and what it must never do; it computes no values. A trace is
drawn by a law from axes and a random generator, so that nobody can have seen it before: its sizes follow from the
shapes of a real step or from a distribution.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.validators.operators.spec import Axes, Workload

DRAWN, PERMUTED, SHIFTED, TIGHT, FITTED = "drawn", "permuted", "shifted", "tight", "fitted"
"""What a case asks: a trace of the law; one with sizes exchanged and changed; one with lifetimes exchanged; one in too
little memory, which must end in MemoryError and nothing worse; the drawn one again in no more memory than it took."""


@dataclass(frozen=True)
class Block:
    """One block of a trace of ``workspace_plan``."""

    size: int
    """Bytes, at least 1."""
    first: int
    """Step in which it is allocated and written."""
    last: int
    """Last step that reads it; it is freed after all allocations of that step."""
    stream: int = 0
    """Stream on which it is allocated."""
    user: int = 0
    """Stream on which it is used last; it is freed there."""


@dataclass(frozen=True)
class BlockTrace:
    """Blocks with lifetimes, and the points where one stream waits for another."""

    blocks: tuple[Block, ...]
    waits: tuple[tuple[int, int, int], ...] = ()
    """(step, stream, on): before the allocations of the step, ``stream`` waits for all that ``on`` was given so far."""
    in_order: bool = False
    """True where blocks die in the order in which they came, as staging chunks do; exchanging lifetimes would break
    it."""

    def events(self) -> Iterator[tuple[str, int, int]]:
        """Yield ``("wait", stream, on)``, ``("alloc", index, 0)`` and ``("free", index, 0)`` in program order."""
        rows = [(step, 0, number, ("wait", stream, on)) for number, (step, stream, on) in enumerate(self.waits)]
        for index, block in enumerate(self.blocks):
            rows.append((block.first, 1, index, ("alloc", index, 0)))
            rows.append((block.last, 2, index, ("free", index, 0)))
        for *_, event in sorted(rows, key=lambda row: row[:3]):
            yield event

    def live_peak(self, alignment: int = 1) -> int:
        """Return the most bytes alive at one step, sizes rounded up to the alignment: no strategy can do with less."""
        changes: dict[int, int] = {}
        for block in self.blocks:
            size = -(-block.size // alignment) * alignment
            changes[block.first] = changes.get(block.first, 0) + size
            changes[block.last + 1] = changes.get(block.last + 1, 0) - size
        live = peak = 0
        for step in sorted(changes):
            live += changes[step]
            peak = max(peak, live)
        return peak

    def total(self, alignment: int = 1) -> int:
        """Return the bytes of all blocks together, which is what no reuse at all takes."""
        return sum(-(-block.size // alignment) * alignment for block in self.blocks)

    def permuted(self, dice: random.Random) -> "BlockTrace":
        """Exchange the sizes among the blocks and change each by up to a half."""
        sizes = [block.size for block in self.blocks]
        dice.shuffle(sizes)
        changed = (max(1, round(size * dice.uniform(0.5, 1.5))) for size in sizes)
        return replace(self, blocks=tuple(replace(b, size=s) for b, s in zip(self.blocks, changed, strict=True)))

    def shifted(self, dice: random.Random) -> "BlockTrace":
        """Exchange the lengths of the lifetimes among the blocks; where they die in order, change sizes instead."""
        if self.in_order or self.waits:
            return self.permuted(dice)
        lengths = [block.last - block.first for block in self.blocks]
        dice.shuffle(lengths)
        moved = zip(self.blocks, lengths, strict=True)
        return replace(self, blocks=tuple(replace(b, last=b.first + length) for b, length in moved))


@dataclass(frozen=True)
class Request:
    """One request of a serving trace."""

    arrival: int
    """Step at which it arrives."""
    prompt: int
    """Tokens of its prompt."""
    output: int
    """Tokens that it generates, one a step."""
    keys: tuple[int, ...] = ()
    """One key for each whole run of ``KEY_TOKENS`` prompt tokens: equal keys mean equal tokens up to that point."""
    forks: int = 0
    """How many copies of it go on from its prompt, each generating ``output`` tokens of its own."""


KEY_TOKENS = 16
"""Tokens that one key of a request stands for."""


@dataclass(frozen=True)
class ServingTrace:
    """Requests and the memory they are served from."""

    requests: tuple[Request, ...]
    capacity_bytes: int
    token_bytes: int
    """Bytes of one token's keys and values over all layers."""
    slot_bytes: int
    """Bytes of one sequence's recurrent state over all layers; 0 if the model has none."""
    max_tokens: int
    """No sequence becomes longer."""


@dataclass(frozen=True)
class GraphTask:
    """What is asked of ``graph_pool``."""

    histograms: tuple[Mapping[int, int], ...]
    """One a stream: batch size to the number of steps at it, as observed."""
    held_back: tuple[Mapping[int, int], ...]
    """Drawn from the same traffic and never shown: padding is counted on it."""
    max_batch: int
    row_bytes: int
    """Activation bytes of a row while a graph replays."""
    graph_bytes: int
    """Bytes each captured graph holds for itself."""
    budget_bytes: int
    alignment: int

    def least_bytes(self) -> int:
        """Return what one graph a stream takes: with less, MemoryError is the right answer."""
        region = -(-self.row_bytes * self.max_batch // self.alignment) * self.alignment
        return (region + self.graph_bytes) * len(self.histograms)


Trace = BlockTrace | ServingTrace | GraphTask
"""What a law draws."""

TraceLaw = Callable[[Axes, random.Random], Trace]
"""Draws one trace: (axes, dice) -> trace."""


@dataclass(frozen=True)
class Form:
    """One form in which a candidate may offer its strategy."""

    name: str
    """The function or class that the module has."""
    contract: str
    """Its signature and what it owes, as Python."""


@dataclass(frozen=True)
class Allocation:
    """A trusted statement of what an allocation strategy is asked for."""

    name: str
    summary: str
    """One line: what is handed out, and what must never happen."""
    forms: tuple[Form, ...]
    """At least one of them must be there; the first that is there is judged."""
    axes: tuple[str, ...]
    laws: Mapping[str, TraceLaw]
    workloads: tuple[Workload, ...]
    metrics: Mapping[str, str]
    """Figure to its meaning; all of them are in the report's ``memory``."""
    source: str = ""
    baselines: tuple[str, ...] = field(default=())
    """Files below ``validators/baselines/<name>/``."""
    family: str = "allocation"

    @property
    def signature(self) -> str:
        """Return the contracts of all forms."""
        return "; or ".join(form.contract for form in self.forms)


def drawn_around(size: int, dice: random.Random, *, spread: float = 0.25) -> int:
    """Return a size within ``spread`` of the given one, at least 1: a shape nobody could have recorded."""
    return max(1, round(size * dice.uniform(1 - spread, 1 + spread)))


def log_uniform(low: int, high: int, dice: random.Random) -> int:
    """Return a whole number whose logarithm is uniform."""
    drawn: float = low * (high / low) ** dice.random()
    return max(low, min(high, round(drawn)))


def by_weight(items: Sequence[tuple[int, float]], dice: random.Random) -> int:
    """Return one of the items, each with its weight."""
    return dice.choices([item for item, _ in items], [weight for _, weight in items])[0]
