"""Ring reduce-scatter whose pieces are computed just in time: the GEMM runs while earlier pieces travel.

Protocol of ``reduce_scatter``: ``run(tensor, group=None)`` returns this rank's rows of the sum, cut as
``torch.tensor_split`` cuts. With ``produce`` the summand need not exist beforehand.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def run(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    produce: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Add up over all ranks and keep the own rows.

    Args:
        tensor: [rows, ...], same shape on every rank: the summand, or what ``produce`` makes it of.
        group: Ranks that take part; None for all.
        produce: Row-wise work (a product with this rank's weight shard): rows in, as many rows out. It is called once
            for each piece, when the piece is due: first for the rows that have the longest way, last for the own ones.

    Returns:
        The own rows of the sum.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    rows = torch.tensor_split(tensor.detach(), world)
    work = produce if produce is not None else _same
    passing = work(rows[(rank - 1) % world]).contiguous()
    for step in range(1, world):
        which = (rank - 1 - step) % world
        into = passing.new_empty(len(rows[which]), *passing.shape[1:])
        requests = _pass_on(passing, into, rank, world, group)
        own = work(rows[which])  # computed while the piece before is on its way
        for request in requests:
            request.wait()
        passing = _add(into, own)
    return passing


def _pass_on(
    out: torch.Tensor, into: torch.Tensor, rank: int, world: int, group: dist.ProcessGroup | None
) -> list[dist.Work]:
    operations = []
    if out.numel():
        operations.append(dist.P2POp(dist.isend, out, _global(group, (rank + 1) % world), group))
    if into.numel():
        operations.append(dist.P2POp(dist.irecv, into, _global(group, (rank - 1) % world), group))
    return dist.batch_isend_irecv(operations) if operations else []


def _add(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    wide = torch.float32 if one.dtype in (torch.float16, torch.bfloat16) else one.dtype
    return (one.to(wide) + other.to(wide)).to(one.dtype)


def _same(rows: torch.Tensor) -> torch.Tensor:
    return rows


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
