"""Let the draft model's graphs and the target model's share one region, as if they never ran at once.

row: K5
operator: graph_pool
reason: overlapping_blocks
"""

# mypy: ignore-errors


def run(histograms, max_batch, row_bytes, graph_bytes, budget_bytes, alignment):
    if len(histograms) * (graph_bytes + -(-row_bytes * max_batch // alignment) * alignment) > budget_bytes:
        raise MemoryError
    return [[(max_batch, 0, max_batch * row_bytes)] for _ in histograms]
