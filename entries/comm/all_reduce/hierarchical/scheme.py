"""Two-level all-reduce: reduce-scatter inside a node, all-reduce of own pieces between nodes, all-gather inside.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def run(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None, *, local_size: int = 2
) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty.
        group: Ranks that take part, node by node; None for all.
        local_size: Ranks a node (8 in most servers); the largest divisor of the group's size up to it is used.

    Returns:
        The sum, bit for bit the same on every rank.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    local = max(size for size in range(1, min(local_size, world) + 1) if world % size == 0)
    node, place = divmod(rank, local)
    inside = [node * local + one for one in range(local)]
    across = [one * local + place for one in range(world // local)]
    flat = tensor.detach().contiguous().view(-1)
    pieces = [piece.contiguous() for piece in torch.tensor_split(flat, local)]
    mine = _sum_of(pieces, inside, place, group)  # fast links: everything but 1/local of the message
    parts = [part.contiguous() for part in torch.tensor_split(mine, len(across))]
    share = _sum_of(parts, across, node, group)  # slow links: 1/local of the message
    mine = torch.cat(_all_of(share, parts, across, node, group))
    return torch.cat(_all_of(mine, pieces, inside, place, group)).view(tensor.shape)


def _sum_of(
    pieces: list[torch.Tensor], ranks: Sequence[int], own: int, group: dist.ProcessGroup | None
) -> torch.Tensor:
    """Send piece i to ``ranks[i]`` and add what comes, in rank order."""
    arrived = [pieces[own] if one == own else torch.empty_like(pieces[own]) for one in range(len(ranks))]
    _exchange(pieces, arrived, ranks, own, group)
    wide = torch.float32 if pieces[own].dtype in (torch.float16, torch.bfloat16) else pieces[own].dtype
    total = arrived[0].to(wide, copy=True)
    for part in arrived[1:]:
        total += part
    return total.to(pieces[own].dtype)


def _all_of(
    mine: torch.Tensor, like: list[torch.Tensor], ranks: Sequence[int], own: int, group: dist.ProcessGroup | None
) -> list[torch.Tensor]:
    """Send the own piece to all and collect theirs."""
    arrived = [mine if one == own else torch.empty_like(like[one]) for one in range(len(ranks))]
    _exchange([mine] * len(ranks), arrived, ranks, own, group)
    return arrived


def _exchange(
    outgoing: list[torch.Tensor],
    incoming: list[torch.Tensor],
    ranks: Sequence[int],
    own: int,
    group: dist.ProcessGroup | None,
) -> None:
    operations = []
    for step in range(1, len(ranks)):
        to, source = (own + step) % len(ranks), (own - step) % len(ranks)
        if outgoing[to].numel():
            operations.append(dist.P2POp(dist.isend, outgoing[to], _global(group, ranks[to]), group))
        if incoming[source].numel():
            operations.append(dist.P2POp(dist.irecv, incoming[source], _global(group, ranks[source]), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
