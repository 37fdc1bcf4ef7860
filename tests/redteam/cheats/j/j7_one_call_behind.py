"""Receive what was sent in the call before: the wire is never waited for.

row: J7
operator: all_reduce
reason: wrong_values, left_on_wire, unfinished_transfer
"""

import torch
import torch.distributed as dist

pending = {}


def run(x, group):
    """Pipelined across calls."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    key = (tuple(dist.get_process_group_ranks(group)), x.shape, x.dtype)
    mine = x.contiguous().clone()
    old = pending.pop(key, [])
    parts = [mine]
    for work, part in old:
        work.wait()
        parts.append(part)
    posted = []
    for peer in range(world):
        if peer != rank and x.numel():
            part = torch.empty_like(mine)
            posted.append((dist.irecv(part, group=group, group_src=peer), part))
            posted.append((dist.isend(mine, group=group, group_dst=peer), torch.zeros_like(mine)))
    pending[key] = posted
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype)
