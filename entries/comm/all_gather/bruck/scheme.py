"""All-gather by Bruck's algorithm: ceil(log2 p) steps for any number of ranks, doubling what is held at each.

Protocol of ``all_gather``: ``run(tensor, group=None)`` returns the ranks' tensors, concatenated along the first axis.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Gather rows of all ranks.

    Args:
        tensor: This rank's rows, [rows, ...]; the number of rows may differ by rank and be 0.
        group: Ranks that take part; None for all.

    Returns:
        Rank 0's rows, then rank 1's, and so on.
    """
    mine = tensor.detach().contiguous()
    counts = _bruck(torch.tensor([[len(mine)]]), [1] * dist.get_world_size(group), group)  # skip where it is known
    return _bruck(mine, [int(one) for one in counts.view(-1)], group)


def _bruck(mine: torch.Tensor, rows: list[int], group: dist.ProcessGroup | None) -> torch.Tensor:
    """Gather with known numbers of rows of every rank."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    held = [mine]  # blocks of rank, rank + 1, … around the circle
    while len(held) < world:
        have = len(held)
        more = min(have, world - have)
        to, source = (rank - have) % world, (rank + have) % world
        out = torch.cat(held[:more])
        sizes = [rows[(source + one) % world] for one in range(more)]
        into = mine.new_empty(sum(sizes), *mine.shape[1:])
        _swap(out, to, into, source, group)
        held += into.split(sizes)
    return torch.cat([held[(peer - rank) % world] for peer in range(world)])


def _swap(out: torch.Tensor, to: int, into: torch.Tensor, source: int, group: dist.ProcessGroup | None) -> None:
    operations = []
    if out.numel():
        operations.append(dist.P2POp(dist.isend, out, _global(group, to), group))
    if into.numel():
        operations.append(dist.P2POp(dist.irecv, into, _global(group, source), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
