"""Write, meet at a barrier that releases nothing, and read.

row: J6
operator: all_reduce
reason: wrong_values, unfinished_transfer
"""

import torch
import torch.distributed as dist


def total(x, link, room):
    """Add up the own tensor and the windows, in rank order."""
    flat = x.contiguous().view(-1)
    parts = [
        flat if one == link.rank else link.window((flat.numel(),), x.dtype, offset=one * room).clone()
        for one in range(link.world_size)
    ]
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype).view(x.shape)


def run(x, group, link):
    """A barrier orders processes, not their writes."""
    room = link.window_bytes // link.world_size // 256 * 256
    for peer in range(link.world_size):
        if peer != link.rank:
            link.put(peer, x.contiguous(), offset=link.rank * room)
    dist.barrier(group=group)
    return total(x, link, room)
