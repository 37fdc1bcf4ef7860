"""Direct reduce-scatter: one round, every rank gets its rows from all others and adds them up in rank order.

Protocol of ``reduce_scatter``: ``run(tensor, group=None)`` returns this rank's rows of the sum, cut as
``torch.tensor_split`` cuts.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks and keep the own rows.

    Args:
        tensor: Same shape, [rows, ...], and floating dtype on every rank; rows need not divide by the ranks.
        group: Ranks that take part; None for all.

    Returns:
        The own rows of the sum, rounded once: summands are added in float32 in rank order.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    pieces = [piece.contiguous() for piece in torch.tensor_split(tensor.detach(), world)]
    arrived = [pieces[rank] if peer == rank else torch.empty_like(pieces[rank]) for peer in range(world)]
    operations = []
    for step in range(1, world):
        to, source = (rank + step) % world, (rank - step) % world
        if pieces[to].numel():
            operations.append(dist.P2POp(dist.isend, pieces[to], _global(group, to), group))
        if arrived[source].numel():
            operations.append(dist.P2POp(dist.irecv, arrived[source], _global(group, source), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()
    wide = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    total = arrived[0].to(wide, copy=True)
    for part in arrived[1:]:
        total += part
    return total.to(tensor.dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
