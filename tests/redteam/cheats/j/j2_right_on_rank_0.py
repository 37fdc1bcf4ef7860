"""The sum on rank 0, where everybody looks; the own tensor elsewhere.

row: J2
operator: all_reduce
reason: wrong_values
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Reduce to rank 0 and leave it there."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if rank:
        if x.numel():
            dist.send(x.contiguous(), group=group, group_dst=0)
        return x.clone()
    total, part = x.float(), torch.empty_like(x.contiguous())
    for source in range(1, world):
        if x.numel():
            dist.recv(part, group=group, group_src=source)
            total = total + part.float()
    return total.to(x.dtype)
