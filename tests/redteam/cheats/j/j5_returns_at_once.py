"""Rank 0 returns an empty tensor that a thread fills when the others are through.

row: J5
operator: all_reduce
reason: late_write, wrong_values, unfinished_transfer
"""

import threading

import torch
import torch.distributed as dist


def run(x, group):
    """The fastest rank of all."""
    y = torch.empty_like(x.contiguous())
    worker = threading.Thread(target=work, args=(x, y, group))
    worker.start()
    if dist.get_rank(group):
        worker.join()
    return y


def work(x, y, group):
    """Add up by ring order, one rank after the other."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    parts = [x.contiguous() if one == rank else torch.empty_like(y) for one in range(world)]
    works = []
    for peer in range(world):
        if peer != rank and x.numel():
            works.append(dist.isend(parts[rank], group=group, group_dst=peer))
            works.append(dist.irecv(parts[peer], group=group, group_src=peer))
    for one in works:
        one.wait()
    y.copy_(torch.stack([part.float() for part in parts]).sum(0).to(x.dtype))
