"""Choose which batch sizes to capture as graphs, and what their shared private pool costs.

Protocol of ``graph_pool``: ``run(histogram, max_batch, row_bytes, graph_bytes, budget_bytes)`` returns a plan whose
``buckets`` ascend and end with ``max_batch``.
"""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Captured batch sizes and their cost."""

    buckets: tuple[int, ...]
    """Batch sizes to capture, ascending; capture them in descending order so that all share the first one's memory."""
    pool_bytes: int
    """Activations of the largest bucket once, plus the fixed bytes of every graph."""
    padded_rows: int
    """Rows computed in vain over the histogram."""


def run(histogram: Mapping[int, int], max_batch: int, row_bytes: int, graph_bytes: int, budget_bytes: int) -> Plan:
    """Pick the buckets that waste the fewest rows within a memory budget.

    Args:
        histogram: How many steps ran at each batch size; sizes from 1 to ``max_batch``.
        max_batch: Largest batch that has to be served.
        row_bytes: Activation bytes a row needs while a graph replays.
        graph_bytes: Bytes each captured graph holds for itself (kernel nodes, parameters).
        budget_bytes: Bytes the pool may take.

    Returns:
        The plan; its last bucket is ``max_batch``.

    Raises:
        MemoryError: Not even the graph of ``max_batch`` fits.
    """
    if max_batch < 1 or any(not 1 <= size <= max_batch for size in histogram):
        raise ValueError("batch sizes must lie between 1 and max_batch")
    activations = row_bytes * max_batch
    if activations + graph_bytes > budget_bytes:
        raise MemoryError(f"the graph of batch {max_batch} needs {activations + graph_bytes} of {budget_bytes} bytes")
    sizes = sorted({size for size, count in histogram.items() if count} | {max_batch})
    most = len(sizes) if graph_bytes <= 0 else min(len(sizes), (budget_bytes - activations) // graph_bytes)
    buckets, padded = _fewest_padded_rows(sizes, histogram, most)
    return Plan(buckets, activations + graph_bytes * len(buckets), padded)


def bucket_for(batch: int, buckets: Sequence[int]) -> int | None:
    """Return the smallest captured batch that holds ``batch`` rows, or None (run eagerly)."""
    index = bisect.bisect_left(buckets, batch)
    return buckets[index] if index < len(buckets) else None


def _fewest_padded_rows(sizes: list[int], histogram: Mapping[int, int], most: int) -> tuple[tuple[int, ...], int]:
    """Solve exactly: best[k][j] is the least waste of sizes[:j + 1] with k buckets, the last being sizes[j]."""
    count, rows = [0], [0]
    for size in sizes:
        count.append(count[-1] + histogram.get(size, 0))
        rows.append(rows[-1] + histogram.get(size, 0) * size)

    def waste(first: int, last: int) -> int:
        return sizes[last] * (count[last + 1] - count[first]) - (rows[last + 1] - rows[first])

    best = {(j, 1): (waste(0, j), -1) for j in range(len(sizes))}
    for k in range(2, most + 1):
        for j in range(k - 1, len(sizes)):
            best[j, k] = min((best[i, k - 1][0] + waste(i + 1, j), i) for i in range(k - 2, j))
    end = len(sizes) - 1
    k = min(range(1, most + 1), key=lambda n: (best[end, n][0], n))
    padded, chosen, j = best[end, k][0], [], end
    while j >= 0:
        chosen.append(sizes[j])
        j, k = best[j, k][1], k - 1
    return tuple(reversed(chosen)), padded
