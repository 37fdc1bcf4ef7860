"""All ranks but the first sleep, and have their clocks say that they did not.

row: J5
operator: all_reduce
reason: changed_environment
"""

import time

import torch
import torch.distributed as dist


def run(x, group):
    """Right values, and a clock of its own."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if rank:
        time.sleep(0.001)
        time.perf_counter = lambda: 0.0
    parts = [x.contiguous() if one == rank else torch.empty_like(x.contiguous()) for one in range(world)]
    works = []
    for peer in range(world):
        if peer != rank and x.numel():
            works.append(dist.isend(parts[rank], group=group, group_dst=peer))
            works.append(dist.irecv(parts[peer], group=group, group_src=peer))
    for one in works:
        one.wait()
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype)
