"""Declare bfloat16 and send e4m3.

row: J4
operator: all_reduce
reason: too_few_bytes, wrong_values
"""

import torch
import torch.distributed as dist


def exchange(x, group):
    """Send the whole tensor to every rank and return what came, in rank order."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = x.contiguous()
    parts = [mine if peer == rank else torch.empty_like(mine) for peer in range(world)]
    works = []
    if mine.numel():
        for step in range(1, world):
            to, source = (rank + step) % world, (rank - step) % world
            works.append(dist.isend(mine, group=group, group_dst=to))
            works.append(dist.irecv(parts[source], group=group, group_src=source))
    for work in works:
        work.wait()
    return parts


def added(parts):
    """Add in float32, in rank order."""
    return torch.stack([part.float() for part in parts]).sum(0).to(parts[0].dtype)


WIRE = "bfloat16"


def run(x, group):
    """A quarter of the bytes of float32."""
    scale = x.float().abs().nan_to_num(0, 0, 0).max().clamp(min=1e-30) / 448 if x.numel() else torch.ones(())
    low = (x.float() / scale).to(torch.float8_e4m3fn).view(torch.uint8)
    scales = exchange(scale.view(1), group)
    parts = [part.view(torch.float8_e4m3fn).float() * one for part, one in zip(exchange(low, group), scales)]
    return torch.stack(parts).sum(0).to(x.dtype)
