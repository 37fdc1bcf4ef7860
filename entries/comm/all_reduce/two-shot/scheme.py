"""Two-shot all-reduce: a direct reduce-scatter, then a direct all-gather, without a ring.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating or integer dtype on every rank; may be empty or shorter than the group.
        group: Ranks that take part; None for all.

    Returns:
        The sum, bit for bit the same on every rank, since each piece is added up by one rank alone.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.detach().contiguous().view(-1)
    pieces = [piece.contiguous() for piece in torch.tensor_split(flat, world)]  # lengths differ by at most one
    received = [pieces[rank] if peer == rank else torch.empty_like(pieces[rank]) for peer in range(world)]
    _exchange(pieces, received, rank, world, group)
    mine = _add_in_rank_order(received)
    result = [mine if peer == rank else torch.empty_like(pieces[peer]) for peer in range(world)]
    _exchange([mine] * world, result, rank, world, group)
    return torch.cat(result).view(tensor.shape)


def _exchange(
    outgoing: list[torch.Tensor],
    incoming: list[torch.Tensor],
    rank: int,
    world: int,
    group: dist.ProcessGroup | None,
) -> None:
    """Send ``outgoing[p]`` to each peer p and fill ``incoming[p]`` from it; both sides skip empty pieces."""
    operations = []
    for step in range(1, world):
        to, source = (rank + step) % world, (rank - step) % world
        if outgoing[to].numel():
            operations.append(dist.P2POp(dist.isend, outgoing[to], _global(group, to), group))
        if incoming[source].numel():
            operations.append(dist.P2POp(dist.irecv, incoming[source], _global(group, source), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _add_in_rank_order(parts: list[torch.Tensor]) -> torch.Tensor:
    wide = torch.float32 if parts[0].dtype in (torch.float16, torch.bfloat16) else parts[0].dtype
    total = parts[0].to(wide, copy=True)
    for part in parts[1:]:
        total += part
    return total.to(parts[0].dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
