"""Wait for the first message of a size, and take for granted that later ones have arrived.

row: J7
operator: all_reduce
reason: wrong_values, left_on_wire
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


met = set()


def run(x, group, link):
    """Later calls are faster."""
    room = link.window_bytes // link.world_size // 256 * 256
    peers = [one for one in range(link.world_size) if one != link.rank]
    for peer in peers:
        link.put(peer, x.contiguous(), offset=link.rank * room)
        link.signal(peer)
    key = (x.shape, x.dtype, link.world_size)
    if key not in met:
        for peer in peers:
            link.wait(peer)
        met.add(key)
    return total(x, link, room)
