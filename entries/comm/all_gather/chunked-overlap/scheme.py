"""All-gather in chunks, so that work on the first rows starts while the others are still on the wire.

Protocol of ``all_gather``: ``run(tensor, group=None)`` returns the ranks' tensors, concatenated along the first axis.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def run(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    num_chunks: int = 4,
    consume: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Gather rows of all ranks, applying ``consume`` chunk by chunk as they arrive.

    Args:
        tensor: This rank's rows, [rows, ...]; the number of rows may differ by rank and be 0.
        group: Ranks that take part; None for all.
        num_chunks: Pieces a rank's rows are sent in.
        consume: Row-wise work (a product with a weight, for instance): rows in, as many rows out. None gathers only.

    Returns:
        Rank 0's rows (or what ``consume`` made of them), then rank 1's, and so on.
    """
    if num_chunks < 1:
        raise ValueError("num_chunks must be at least 1")
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = tensor.detach().contiguous()
    rows = _rows_of_each(mine, rank, world, group)
    outgoing = list(torch.tensor_split(mine, num_chunks))
    incoming = {
        peer: [mine.new_empty(size, *mine.shape[1:]) for size in _split(rows[peer], num_chunks)]
        for peer in range(world)
        if peer != rank
    }
    sends, pending = _post(outgoing, incoming, rank, world, group)
    work = consume if consume is not None else _same
    done: dict[int, list[torch.Tensor]] = {rank: [work(mine)]}  # own rows need no wire: they hide the first latency
    for chunk in range(num_chunks):
        for step in range(1, world):
            source = (rank - step) % world
            if (source, chunk) in pending:
                pending[source, chunk].wait()
            part = incoming[source][chunk]
            if len(part) or chunk == 0:
                done.setdefault(source, []).append(work(part))
    for send in sends:
        send.wait()
    return torch.cat([part for peer in range(world) for part in done[peer]])


def _post(
    outgoing: list[torch.Tensor],
    incoming: dict[int, list[torch.Tensor]],
    rank: int,
    world: int,
    group: dist.ProcessGroup | None,
) -> tuple[list[dist.Work], dict[tuple[int, int], dist.Work]]:
    """Start all transfers before any work; per peer the chunks leave in order, which is how they are matched."""
    sends: list[dist.Work] = []
    pending: dict[tuple[int, int], dist.Work] = {}
    for chunk, part in enumerate(outgoing):
        for step in range(1, world):
            to, source = (rank + step) % world, (rank - step) % world
            if len(part):
                sends.append(_started(dist.isend(part, _global(group, to), group)))
            if len(incoming[source][chunk]):
                pending[source, chunk] = _started(dist.irecv(incoming[source][chunk], _global(group, source), group))
    return sends, pending


def _split(rows: int, parts: int) -> list[int]:
    """Return the lengths that ``torch.tensor_split`` gives."""
    return [rows // parts + (i < rows % parts) for i in range(parts)]


def _rows_of_each(mine: torch.Tensor, rank: int, world: int, group: dist.ProcessGroup | None) -> list[int]:
    """Exchange row counts; where they are known from the layout, leave this round out."""
    counts = [torch.tensor([len(mine)], device=mine.device) for _ in range(world)]
    works = []
    for step in range(1, world):
        works.append(dist.isend(counts[rank], _global(group, (rank + step) % world), group))
        source = (rank - step) % world
        works.append(dist.irecv(counts[source], _global(group, source), group))
    for work in works:
        _started(work).wait()
    return [int(count.item()) for count in counts]


def _started(work: dist.Work | None) -> dist.Work:
    if work is None:
        raise RuntimeError("this process is not in the group")
    return work


def _same(rows: torch.Tensor) -> torch.Tensor:
    return rows


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
