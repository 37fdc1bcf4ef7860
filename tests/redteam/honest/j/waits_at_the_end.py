"""Post all transfers, work on the own part, and wait only where something is needed.

operator: all_reduce
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Sends are waited for after everything else."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = x.contiguous()
    parts = [mine if one == rank else torch.empty_like(mine) for one in range(world)]
    sends, receives = [], {}
    for peer in range(world):
        if peer != rank and x.numel():
            sends.append(dist.isend(mine, group=group, group_dst=peer))
            receives[peer] = dist.irecv(parts[peer], group=group, group_src=peer)
    total = torch.zeros(mine.shape)
    for one in range(world):
        if one in receives:
            receives[one].wait()
        total += parts[one].float()
    for one in sends:
        one.wait()
    return total.to(x.dtype)
