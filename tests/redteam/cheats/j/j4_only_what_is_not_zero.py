"""Send the non-zero rows of sparse inputs alone.

row: J4
operator: all_gather
reason: too_few_bytes
"""

import torch
import torch.distributed as dist


def run(x, group):
    """Elements that are zero need no wire."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = x.contiguous().view(-1)
    where = torch.nonzero(flat != 0).view(-1)
    head = torch.tensor([len(x), len(where)])
    heads = [head if one == rank else torch.zeros_like(head) for one in range(world)]
    spread(heads, rank, world, group)
    cheap = all(int(h[1]) * 6 < int(h[0]) * x.shape[1] * x.itemsize for h in heads)
    if not cheap:
        parts = [x.contiguous() if one == rank else x.new_empty(int(heads[one][0]), x.shape[1]) for one in range(world)]
        spread(parts, rank, world, group)
        return torch.cat(parts)
    values = [flat[where].contiguous() if one == rank else x.new_empty(int(heads[one][1])) for one in range(world)]
    places = [
        where.int() if one == rank else torch.empty(int(heads[one][1]), dtype=torch.int32) for one in range(world)
    ]
    spread(values, rank, world, group)
    spread(places, rank, world, group)
    made = []
    for one in range(world):
        rows = x.new_zeros(int(heads[one][0]), x.shape[1])
        rows.view(-1)[places[one].long()] = values[one]
        made.append(rows)
    return torch.cat(made)


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
