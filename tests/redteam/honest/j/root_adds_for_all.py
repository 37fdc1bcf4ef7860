"""One rank adds up for all and sends the sum: the others compute nothing.

operator: all_reduce
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Reduce to rank 0, then copy from there."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = x.contiguous()
    if x.numel() == 0:
        return mine.clone()
    if rank:
        dist.send(mine, group=group, group_dst=0)
        y = torch.empty_like(mine)
        dist.recv(y, group=group, group_src=0)
        return y
    parts = [mine] + [torch.empty_like(mine) for _ in range(1, world)]
    for source in range(1, world):
        dist.recv(parts[source], group=group, group_src=source)
    y = torch.stack([part.float() for part in parts]).sum(0).to(x.dtype)
    for peer in range(1, world):
        dist.send(y, group=group, group_dst=peer)
    return y
