"""What a strategy is compared with: trusted strategies over the same traces, in this process, books only."""

import importlib.resources
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kb.validators.operators.allocation import Allocation, BlockTrace, GraphTask, ServingTrace, Trace
from kb.validators.runtime.allocation import graphs
from kb.validators.runtime.allocation.bench import CaseFailedError
from kb.validators.runtime.allocation.ledger import Ledger
from kb.validators.runtime.allocation.pages import Answer, Serving

_ENDLESS = 1 << 50
"""Memory in which no strategy runs out."""


def source(operator: str, name: str) -> bytes:
    """Return the file of a baseline: an ordinary candidate."""
    return importlib.resources.files("kb.validators").joinpath("baselines", operator, f"{name}.py").read_bytes()


def load(operator: str, name: str) -> ModuleType:
    """Run a baseline's file as a module of this process; it is part of kb and trusted."""
    module = ModuleType(f"baseline_{name}")
    exec(compile(source(operator, name), f"<{operator}/{name}>", "exec"), vars(module))  # noqa: S102 - our own file
    return module


def compare(spec: Allocation, trace: Trace, *, alignment: int) -> dict[str, Any]:
    """Return the figures of every baseline on one trace, by name; None where it cannot serve it."""
    return {name: _one(load(spec.name, name), trace, alignment) for name in spec.baselines}


def _one(module: ModuleType, trace: Trace, alignment: int) -> Mapping[str, Any] | None:
    try:
        if isinstance(trace, BlockTrace):
            return _blocks(module, trace, alignment)
        if isinstance(trace, ServingTrace):
            return Serving(trace, LocalPool(module, trace), None, None).run()
        return _graphs(module, trace)
    except (CaseFailedError, MemoryError):
        return None


def _blocks(module: ModuleType, trace: BlockTrace, alignment: int) -> dict[str, Any]:
    strategy = vars(module)["Allocator"](_ENDLESS, alignment)
    streams = 1 + max((max(b.stream, b.user) for b in trace.blocks), default=0)
    ledger = Ledger(_ENDLESS, alignment, streams)
    given: dict[int, int] = {}
    for kind, first, second in trace.events():
        if kind == "wait":
            strategy.wait(first, second)
            ledger.wait(first, second)
            continue
        block = trace.blocks[first]
        if kind == "alloc":
            given[first] = strategy.alloc(block.size, block.stream)
            problem = ledger.place(first, given[first], block.size, block.stream)
            if problem is not None:
                raise CaseFailedError(*problem)
        else:
            ledger.free(first, block.user)
            strategy.free(given.pop(first), block.user)
    reserved = getattr(strategy, "reserved_bytes", ledger.touched_bytes)()
    return {"peak_bytes": reserved, "fragmentation": reserved / trace.live_peak(alignment)}


class LocalPool:
    """A trusted pool of this process."""

    def __init__(self, module: ModuleType, trace: ServingTrace) -> None:
        self._pool = vars(module)["Pool"](trace.capacity_bytes, trace.token_bytes, trace.slot_bytes, trace.max_tokens)
        self.page_tokens: int = self._pool.page_tokens

    def _answer(self, number: int, found: int, copies: list[tuple[int, int, int]]) -> Answer:
        flat = [value for row in copies for value in row]
        return Answer(list(self._pool.table(number)), self._pool.slot(number), found, flat)

    def admit(self, number: int, tokens: int, keys: tuple[int, ...]) -> Answer | None:
        """Take a new sequence in."""
        try:
            return self._answer(number, self._pool.admit(number, tokens, keys), [])
        except MemoryError:
            return None

    def append(self, number: int, tokens: int) -> Answer | None:
        """Make room for more tokens."""
        try:
            return self._answer(number, 0, self._pool.append(number, tokens))
        except MemoryError:
            return None

    def fork(self, parent: int, child: int) -> Answer | None:
        """Make a copy of a sequence."""
        try:
            return self._answer(child, 0, self._pool.fork(parent, child))
        except MemoryError:
            return None

    def release(self, number: int) -> None:
        """Give all of a sequence back."""
        self._pool.free(number)


def _graphs(module: ModuleType, task: GraphTask) -> dict[str, Any]:
    streams = vars(module)["run"](
        list(task.histograms), task.max_batch, task.row_bytes, task.graph_bytes, task.budget_bytes, task.alignment
    )
    figures = graphs.examine(task, streams)
    return {name: figures[name] for name in ("peak_bytes", "fragmentation", "graphs", "padded")}
