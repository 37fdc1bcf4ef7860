"""One rank has more to do than the others: slow, and right.

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
    """Some work on the side on rank 0."""
    parts = exchange(x, group)
    if dist.get_rank(group) == 0:
        square = torch.ones(96, 96)
        for _ in range(20):
            square = square @ square / 96
        return added(parts) * square[0, 0].to(x.dtype)
    return added(parts)
