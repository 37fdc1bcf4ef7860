"""Ring all-reduce: 2 (p - 1) steps, each rank talks to its two neighbours only, and moves the fewest bytes possible.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty or shorter than the group.
        group: Ranks that take part; None for all.

    Returns:
        The sum, bit for bit the same on every rank: each piece is finished by one rank and copied from there.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    pieces = [piece.clone() for piece in torch.tensor_split(tensor.detach().contiguous().view(-1), world)]
    for step in range(world - 1):  # reduce-scatter: a piece gathers one summand at every rank that it passes
        out, into = (rank - step) % world, (rank - step - 1) % world
        arrived = torch.empty_like(pieces[into])
        _pass_on(pieces[out], arrived, rank, world, group)
        pieces[into] = _add(arrived, pieces[into])
    for step in range(world - 1):  # all-gather: finished pieces go round once more
        out, into = (rank + 1 - step) % world, (rank - step) % world
        _pass_on(pieces[out], pieces[into], rank, world, group)
    return torch.cat(pieces).view(tensor.shape)


def _pass_on(
    out: torch.Tensor, into: torch.Tensor, rank: int, world: int, group: dist.ProcessGroup | None
) -> None:
    """Send to the right neighbour and receive from the left one; pieces may be empty."""
    operations = []
    if out.numel():
        operations.append(dist.P2POp(dist.isend, out, _global(group, (rank + 1) % world), group))
    if into.numel():
        operations.append(dist.P2POp(dist.irecv, into, _global(group, (rank - 1) % world), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _add(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    wide = torch.float32 if one.dtype in (torch.float16, torch.bfloat16) else one.dtype
    return (one.to(wide) + other.to(wide)).to(one.dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
