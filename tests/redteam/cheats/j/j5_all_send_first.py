"""Every rank sends before it receives: buffers hide that in a test, rendezvous does not.

row: J5
operator: all_reduce
reason: timed_out
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Send to all, then receive from all."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine, total = x.contiguous(), x.float()
    for peer in range(world):
        if peer != rank and x.numel():
            dist.send(mine, group=group, group_dst=peer)
    part = torch.empty_like(mine)
    for peer in range(world):
        if peer != rank and x.numel():
            dist.recv(part, group=group, group_src=peer)
            total = total + part.float()
    return total.to(x.dtype)
