"""Graphs of 1, 2, 4 … rows, each captured into memory of its own."""

from collections.abc import Mapping, Sequence


def run(
    histograms: Sequence[Mapping[int, int]],
    max_batch: int,
    row_bytes: int,
    graph_bytes: int,
    budget_bytes: int,
    alignment: int,
) -> list[list[tuple[int, int, int]]]:
    """Plan graphs of 1, 2, 4 … rows, leaving out small ones until all fit into the budget."""
    batches = [1 << power for power in range(max_batch.bit_length()) if 1 << power < max_batch] + [max_batch]
    while True:
        end, streams = 0, []
        for _ in histograms:
            graphs = []
            for batch in batches:
                size = -(-batch * row_bytes // alignment) * alignment
                graphs.append((batch, end, size))
                end += size
            streams.append(graphs)
        if end + graph_bytes * len(batches) * len(histograms) <= budget_bytes:
            return streams
        if len(batches) == 1:
            raise MemoryError(f"{end} of {budget_bytes} bytes")
        batches = batches[:-2] + batches[-1:]  # without the largest but one, which costs most
