"""Overwrite a buffer whose send was posted and not waited for.

row: J6
operator: all_reduce
reason: wrong_values
"""

import torch
import torch.distributed as dist


def run(x, group):
    """One buffer for input and result."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    own, y = x.contiguous().clone(), x.contiguous().clone()
    parts = [own if one == rank else torch.empty_like(own) for one in range(world)]
    sends, receives = [], []
    for peer in range(world):
        if peer != rank and x.numel():
            receives.append(dist.irecv(parts[peer], group=group, group_src=peer))
            sends.append(dist.isend(y, group=group, group_dst=peer))
    y.zero_()
    for one in receives + sends:
        one.wait()
    y.copy_(torch.stack([part.float() for part in parts]).sum(0).to(x.dtype))
    return y
