"""One-shot all-reduce: every rank sends its whole tensor to every other one and adds up locally.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating or integer dtype on every rank; may be empty.
        group: Ranks that take part; None for all.

    Returns:
        The sum, bit for bit the same on every rank.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = tensor.detach().contiguous()
    parts = [mine if peer == rank else torch.empty_like(mine) for peer in range(world)]
    if mine.numel() and world > 1:
        operations = []
        for step in range(1, world):
            # Every rank starts with another peer, so that no link is asked by all at once.
            to, source = (rank + step) % world, (rank - step) % world
            operations.append(dist.P2POp(dist.isend, mine, _global(group, to), group))
            operations.append(dist.P2POp(dist.irecv, parts[source], _global(group, source), group))
        for request in dist.batch_isend_irecv(operations):
            request.wait()
    return add_in_rank_order(parts)


def add_in_rank_order(parts: list[torch.Tensor]) -> torch.Tensor:
    """Add in float32 (16-bit inputs) and always in rank order, so that all ranks round alike."""
    wide = torch.float32 if parts[0].dtype in (torch.float16, torch.bfloat16) else parts[0].dtype
    total = parts[0].to(wide, copy=True)
    for part in parts[1:]:
        total += part
    return total.to(parts[0].dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
