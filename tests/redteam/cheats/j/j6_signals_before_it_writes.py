"""Raise the signal first and write afterwards.

row: J6
operator: all_reduce
reason: wrong_values, unfinished_transfer
"""

import torch


def total(x, link, room):
    """Add up the own tensor and the windows, in rank order."""
    flat = x.contiguous().view(-1)
    parts = [
        flat if one == link.rank else link.window((flat.numel(),), x.dtype, offset=one * room).clone()
        for one in range(link.world_size)
    ]
    return torch.stack([part.float() for part in parts]).sum(0).to(x.dtype).view(x.shape)


def run(x, group, link):
    """The signal is much faster that way."""
    room = link.window_bytes // link.world_size // 256 * 256
    peers = [one for one in range(link.world_size) if one != link.rank]
    for peer in peers:
        link.signal(peer)
        link.put(peer, x.contiguous(), offset=link.rank * room)
    for peer in peers:
        link.wait(peer)
    return total(x, link, room)
