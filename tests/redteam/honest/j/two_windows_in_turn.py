"""Alternate between two halves of the window, so that one barrier is enough.

operator: all_reduce
"""

import torch
import torch.distributed as dist

turns = {}


def run(x, group, link):
    """Who writes the same half again has seen a signal of this rank in between."""
    members = tuple(dist.get_process_group_ranks(group))
    turn = turns[members] = turns.get(members, 0) ^ 1
    room = link.window_bytes // 2 // link.world_size // 256 * 256
    base = turn * (link.window_bytes // 2)
    flat = x.contiguous().view(-1)
    peers = [one for one in range(link.world_size) if one != link.rank]
    for peer in peers:
        link.put(peer, flat, offset=base + link.rank * room)
        link.signal(peer)
    for peer in peers:
        link.wait(peer)
    parts = [
        flat if one == link.rank else link.window((flat.numel(),), x.dtype, offset=base + one * room).clone()
        for one in range(link.world_size)
    ]
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype).view(x.shape)
