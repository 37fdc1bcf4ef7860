"""Meet at a barrier of the library and agree on sizes through it; the data go by messages.

operator: all_reduce
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


def run(x, group):
    """Control through the library, payload by hand."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([x.numel()]), group=group)
    dist.barrier(group=group)
    if len({int(one) for one in sizes}) != 1:
        raise ValueError("ranks have tensors of different sizes")
    return added(exchange(x, group))
