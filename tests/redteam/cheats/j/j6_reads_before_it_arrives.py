"""Use what is received without waiting for it.

row: J6
operator: all_reduce
reason: wrong_values, unfinished_transfer
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Post everything, add up, and wait for nothing but the sends."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = x.contiguous()
    parts = [mine if one == rank else torch.empty_like(mine) for one in range(world)]
    sends, receives = [], []
    for peer in range(world):
        if peer != rank and x.numel():
            receives.append(dist.irecv(parts[peer], group=group, group_src=peer))
            sends.append(dist.isend(mine, group=group, group_dst=peer))
    for one in sends:
        one.wait()
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype)
