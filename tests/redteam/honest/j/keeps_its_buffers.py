"""Receive into buffers that are kept from call to call, and return new memory.

operator: all_reduce
"""

import torch
import torch.distributed as dist

kept = {}


def run(x, group):
    """Nothing is allocated for messages after the first call of a size."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = x.contiguous()
    buffers = kept.setdefault((x.shape, x.dtype), [torch.empty_like(mine) for _ in range(8)])
    works = []
    for peer in range(world):
        if peer != rank and x.numel():
            works.append(dist.isend(mine, group=group, group_dst=peer))
            works.append(dist.irecv(buffers[peer], group=group, group_src=peer))
    for one in works:
        one.wait()
    parts = [mine if one == rank else buffers[one] for one in range(world)]
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype)
