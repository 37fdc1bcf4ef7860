"""The conversation with a ``graph_pool`` strategy: a plan, its books, and a replay of traffic that was held back."""

import bisect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kb.validators.operators.allocation import TIGHT, GraphTask
from kb.validators.runtime.allocation.bench import (
    Bench,
    CaseFailedError,
    raise_failure,
    rounded_up,
    wholes,
)
from kb.validators.runtime.allocation.ledger import Ledger
from kb.validators.runtime.allocation.stores import ArenaStore, Contents, Store, WorkerStore

_REPLAYS = 12
"""Steps of the held-back traffic whose regions are written and read."""

Graph = tuple[int, int, int]
"""(batch, offset, size) of one captured graph."""


def run(bench: Bench, task: GraphTask, contents: str) -> dict[str, Any]:
    """Ask for one plan and look at it.

    Args:
        bench: The worker and what is measured around it.
        task: What is asked.
        contents: ``drawn``, or ``tight`` for a budget in which nothing fits.

    Returns:
        Its figures; the operator's ``metrics`` say what they mean.

    Raises:
        CaseFailedError: The plan is none.
        WorkerEndedError: The worker is gone or too slow.
    """
    if contents == TIGHT:
        task = replace(task, budget_bytes=task.least_bytes() - bench.dice.randint(1, task.graph_bytes))
    bench.host.start()
    began = bench.clock()
    reply = bench.ask(
        "graphs", histograms=[{"batch": list(one), "steps": list(one.values())} for one in task.histograms],
        max_batch=task.max_batch, row_bytes=task.row_bytes, graph_bytes=task.graph_bytes,
        budget_bytes=task.budget_bytes, alignment=task.alignment,
    )  # fmt: skip
    seconds = bench.clock() - began
    host_bytes = bench.host_within(sum(map(len, task.histograms)))
    if "out_of_memory" in reply:
        if contents == TIGHT:
            return {"mode": "tight", "budget_bytes": task.budget_bytes}
        raise CaseFailedError("over_budget", "MemoryError, although a graph a stream fits into the budget")
    raise_failure(reply, "bad_out_of_memory" if contents == TIGHT else "crashed", "run")
    if contents == TIGHT:
        raise CaseFailedError("bad_out_of_memory", "a plan for a budget in which nothing fits, and no MemoryError")
    streams = _streams(reply, task)
    figures = examine(task, streams)
    figures |= {"mode": "offline", "host_bytes": host_bytes, "us_per_operation": seconds * 1e6}
    figures["outside_bytes"] = _replay(bench, task, streams)
    return figures


def _streams(reply: dict[str, Any], task: GraphTask) -> list[list[Graph]]:
    raw = reply.get("streams")
    if not isinstance(raw, list) or len(raw) != len(task.histograms):
        raise CaseFailedError("wrong_answer", f"a plan for {len(task.histograms)} streams was expected")
    rows = [wholes({"graphs": one}, "graphs") for one in raw]
    return [list(zip(flat[::3], flat[1::3], flat[2::3], strict=True)) for flat in rows]


def examine(task: GraphTask, streams: list[list[Graph]]) -> dict[str, Any]:
    """Check a plan against its task and return its figures.

    Raises:
        CaseFailedError: It breaks the contract.
    """
    for graphs in streams:
        batches = [batch for batch, _, _ in graphs]
        if not batches or batches != sorted(set(batches)) or batches[0] < 1 or batches[-1] != task.max_batch:
            raise CaseFailedError("wrong_answer", f"batches must ascend to {task.max_batch}: {str(batches)[:80]}")
        for batch, offset, size in graphs:
            if size < batch * task.row_bytes:
                raise CaseFailedError("overlapping_blocks", f"{size} bytes for {batch} rows of {task.row_bytes}")
            if offset < 0 or offset % task.alignment:
                raise CaseFailedError("misaligned", f"a region at {offset}")
    _apart(task, streams)
    count = sum(map(len, streams))
    peak = max(offset + size for graphs in streams for _, offset, size in graphs) + count * task.graph_bytes
    if peak > task.budget_bytes:
        raise CaseFailedError("over_budget", f"{peak} bytes of {task.budget_bytes}")
    live = len(streams) * task.max_batch * task.row_bytes + count * task.graph_bytes
    return {
        "live_bytes": live,
        "peak_bytes": peak,
        "fragmentation": peak / live,
        "graphs": count,
        "padded": padded(streams, task.held_back),
        "budget_used": peak / task.budget_bytes,
    }


def _apart(task: GraphTask, streams: list[list[Graph]]) -> None:
    for number, graphs in enumerate(streams):
        for other in streams[:number]:
            for batch, offset, size in graphs:
                for second, start, length in other:
                    if offset < start + length and start < offset + size:
                        words = f"the graphs of {batch} and {second} rows replay at the same time and share bytes"
                        raise CaseFailedError("overlapping_blocks", words)


def padded(streams: list[list[Graph]], traffic: tuple[Mapping[int, int], ...]) -> float:
    """Return the share of rows that are computed in vain."""
    rows = computed = 0
    for graphs, histogram in zip(streams, traffic, strict=True):
        batches = [batch for batch, _, _ in graphs]
        for batch, steps in histogram.items():
            rows += batch * steps
            computed += batches[bisect.bisect_left(batches, batch)] * steps
    return 1 - rows / computed if computed else 0.0


def _replay(bench: Bench, task: GraphTask, streams: list[list[Graph]]) -> int | None:
    """Run steps of all streams at once: each writes its region, and finds it unchanged when all have written."""
    end = max(offset + size for graphs in streams for _, offset, size in graphs)
    outside = None
    store: Store = ArenaStore(bench.arena)
    if bench.gpu is not None:
        bench.gpu.start()
        regions = [[offset, size] for graphs in streams for _, offset, size in reversed(graphs)]
        bench.answered("open", buffer_bytes=rounded_up(end, 1 << 21))
        flat = {"offsets": [one for one, _ in regions], "sizes": [one for _, one in regions]}
        bench.answered("capture", **flat)
        outside = bench.gpu.look()
        store = WorkerStore(bench.worker, bench.arena, capacity=end, limit_s=bench.limit_s)
    for _ in range(_REPLAYS):
        ledger, contents = Ledger(end, task.alignment), Contents(store, bench.dice)
        for number, (graphs, traffic) in enumerate(zip(streams, task.held_back, strict=True)):
            batch = bench.dice.choice(list(traffic))
            chosen = graphs[bisect.bisect_left([one for one, _, _ in graphs], batch)]
            problem = ledger.place(number, chosen[1], task.row_bytes * batch)
            if problem is not None:
                raise CaseFailedError(*problem)
            contents.begin(number, chosen[1], task.row_bytes * batch)
        for number in range(len(streams)):
            if not contents.intact(number):
                raise CaseFailedError("lost_contents", "a graph's region was written by another stream's graph")
    if bench.gpu is not None:
        bench.answered("close")
    return outside
