"""Send nothing to and expect nothing from ranks that have no rows.

operator: all_gather
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Exchange row counts, then rows where there are any."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    counts = [torch.tensor([len(x)]) if one == rank else torch.zeros(1, dtype=torch.int64) for one in range(world)]
    spread(counts, rank, world, group)
    parts = [x.contiguous() if one == rank else x.new_empty(int(counts[one]), x.shape[1]) for one in range(world)]
    spread(parts, rank, world, group)
    return torch.cat([part for part in parts if len(part)] or [x.contiguous()])


def spread(parts, rank, world, group):
    """Exchange parts of known sizes."""
    works = []
    for step in range(1, world):
        to, source = (rank + step) % world, (rank - step) % world
        if parts[rank].numel():
            works.append(dist.isend(parts[rank], group=group, group_dst=to))
        if parts[source].numel():
            works.append(dist.irecv(parts[source], group=group, group_src=source))
    for work in works:
        work.wait()
