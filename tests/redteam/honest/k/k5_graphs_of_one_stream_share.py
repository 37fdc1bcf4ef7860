"""Gives all graphs of a stream the same bytes, since they never replay at the same time.

operator: graph_pool
"""

# mypy: ignore-errors


def run(histograms, max_batch, row_bytes, graph_bytes, budget_bytes, alignment):
    region = -(-row_bytes * max_batch // alignment) * alignment
    count = (budget_bytes - region * len(histograms)) // (graph_bytes * len(histograms))
    if count < 1:
        raise MemoryError(budget_bytes)
    step = -(-max_batch // min(count, max_batch))
    batches = sorted({max_batch, *range(max_batch, 0, -step)})
    return [[(batch, n * region, batch * row_bytes) for batch in batches] for n, _ in enumerate(histograms)]
