"""Choose which batch sizes to capture as graphs, and where in one shared private pool their memory lies.

Protocol of ``graph_pool``. Graphs of one stream share their bytes, since they never replay at the same time; each
stream gets a region of its own.
"""

import bisect
from collections.abc import Mapping, Sequence

Graph = tuple[int, int, int]
"""(batch, offset, size): rows of a captured graph, and the bytes of the pool that it may write."""


def run(
    histograms: Sequence[Mapping[int, int]], max_batch: int, row_bytes: int, graph_bytes: int, budget_bytes: int,
    alignment: int,
) -> list[list[Graph]]:  # fmt: skip
    """Pick the buckets that waste the fewest rows over all streams within a memory budget.

    Args:
        histograms: For each stream, how many steps ran at each batch size; sizes from 1 to ``max_batch``.
        max_batch: Largest batch that has to be served on every stream.
        row_bytes: Activation bytes a row needs while a graph replays.
        graph_bytes: Bytes each captured graph holds for itself (kernel nodes, parameters).
        budget_bytes: Bytes the pool and the graphs may take.
        alignment: Power of two in bytes on which each region starts.

    Returns:
        For each stream its graphs by ascending batch, the last for ``max_batch``; capture them in descending order.

    Raises:
        MemoryError: Not even one graph a stream fits.
    """
    if max_batch < 1 or any(not 1 <= size <= max_batch for one in histograms for size in one):
        raise ValueError("batch sizes must lie between 1 and max_batch")
    region = -(-row_bytes * max_batch // alignment) * alignment
    left = budget_bytes - region * len(histograms)
    most = left // graph_bytes if graph_bytes > 0 else max_batch * len(histograms)
    if left < 0 or most < len(histograms):
        raise MemoryError(f"{len(histograms)} graphs of {max_batch} rows do not fit into {budget_bytes} bytes")
    plans = [_fewest_padded_rows(sorted({*one, max_batch}), one, most) for one in histograms]
    return [
        [(batch, number * region, batch * row_bytes) for batch in plans[number][graphs - 1][0]]
        for number, graphs in enumerate(_shares(plans, most))
    ]


def bucket_for(batch: int, buckets: Sequence[int]) -> int | None:
    """Return the smallest captured batch that holds ``batch`` rows, or None (run eagerly)."""
    index = bisect.bisect_left(buckets, batch)
    return buckets[index] if index < len(buckets) else None


def _shares(plans: list[list[tuple[tuple[int, ...], int]]], most: int) -> list[int]:
    """Divide the graphs among the streams; one more always goes where it saves the most rows.

    Padded rows are convex enough in the number of graphs that taking them one by one is right in practice.
    """
    shares = [1] * len(plans)
    while sum(shares) < most:
        gains = [
            (plan[share - 1][1] - plan[share][1], number)
            for number, (plan, share) in enumerate(zip(plans, shares, strict=True))
            if share < len(plan)
        ]
        if not gains or max(gains)[0] <= 0:
            break
        shares[max(gains)[1]] += 1
    return shares


def _fewest_padded_rows(
    sizes: list[int], histogram: Mapping[int, int], most: int
) -> list[tuple[tuple[int, ...], int]]:
    """Return for 1, 2 … ``most`` buckets the best choice and its padded rows, exactly.

    ``best[j, k]`` is the least waste of ``sizes[:j + 1]`` with k buckets, the last being ``sizes[j]``.
    """
    count, rows = [0], [0]
    for size in sizes:
        count.append(count[-1] + histogram.get(size, 0))
        rows.append(rows[-1] + histogram.get(size, 0) * size)

    def waste(first: int, last: int) -> int:
        return sizes[last] * (count[last + 1] - count[first]) - (rows[last + 1] - rows[first])

    most = min(most, len(sizes))
    best = {(j, 1): (waste(0, j), -1) for j in range(len(sizes))}
    for k in range(2, most + 1):
        for j in range(k - 1, len(sizes)):
            best[j, k] = min((best[i, k - 1][0] + waste(i + 1, j), i) for i in range(k - 2, j))
    found = []
    for k in range(1, most + 1):
        chosen, j, left = [], len(sizes) - 1, k
        while j >= 0:
            chosen.append(sizes[j])
            j, left = best[j, left][1], left - 1
        found.append((tuple(reversed(chosen)), best[len(sizes) - 1, k][0]))
    return found
