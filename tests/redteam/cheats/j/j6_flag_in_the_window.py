"""Write data and then a flag, as two writes that nothing orders, and poll the flag.

row: J6
operator: all_reduce
reason: wrong_values, unfinished_transfer
"""

import time

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
    """Works wherever writes happen to stay in order."""
    room = link.window_bytes // link.world_size // 256 * 256
    peers = [one for one in range(link.world_size) if one != link.rank]
    flags = link.window((link.world_size,), torch.int64, offset=link.window_bytes - 4096)
    for peer in peers:
        link.put(peer, x.contiguous(), offset=link.rank * room)
        link.put(peer, torch.tensor([77]), offset=link.window_bytes - 4096 + 8 * link.rank)
    until = time.monotonic() + 2
    while any(int(flags[one]) != 77 for one in peers) and time.monotonic() < until:
        time.sleep(0.001)
    flags.zero_()
    return total(x, link, room)
