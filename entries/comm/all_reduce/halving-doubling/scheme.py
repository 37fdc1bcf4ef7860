"""All-reduce by recursive halving and doubling: 2 log2(p) steps and still the fewest bytes.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import torch
import torch.distributed as dist


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty.
        group: Ranks that take part, any number; None for all.

    Returns:
        The sum, bit for bit the same on every rank.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.detach().contiguous().view(-1).clone()
    core = 1 << (world.bit_length() - 1)  # largest power of two among the ranks
    extra = world - core
    if rank < 2 * extra and rank % 2 == 0:  # too many for a power of two: this one hands over, and waits
        _send(flat, rank + 1, group)
        _receive(flat, rank + 1, group)
        return flat.view(tensor.shape)
    if rank < 2 * extra:
        other = torch.empty_like(flat)
        _receive(other, rank - 1, group)
        flat = _add(other, flat)
    place = rank // 2 if rank < 2 * extra else rank - extra
    start, stop = 0, flat.numel()
    passed: list[tuple[int, slice, slice]] = []
    distance = core // 2
    while distance:  # halving: the partner keeps one half of what is left, this rank the other
        peer = _rank_at(place ^ distance, extra)
        lower = not place & distance
        cut = (start + stop) // 2
        kept, given = (slice(start, cut), slice(cut, stop)) if lower else (slice(cut, stop), slice(start, cut))
        arrived = torch.empty_like(flat[kept])
        _swap(flat[given], arrived, peer, group)
        mine = flat[kept]
        # The lower partner's summand first, on both sides alike.
        mine.copy_(_add(mine, arrived) if lower else _add(arrived, mine))
        passed.append((peer, kept, given))
        start, stop = kept.start, kept.stop
        distance //= 2
    for peer, kept, given in reversed(passed):  # doubling: the same partners backwards, with finished halves
        _swap(flat[kept], flat[given], peer, group)
    if rank < 2 * extra:
        _send(flat, rank - 1, group)
    return flat.view(tensor.shape)


def _rank_at(place: int, extra: int) -> int:
    """Return the rank that has a place among the power of two."""
    return 2 * place + 1 if place < extra else place + extra


def _swap(out: torch.Tensor, into: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> None:
    operations = []
    if out.numel():
        operations.append(dist.P2POp(dist.isend, out, _global(group, peer), group))
    if into.numel():
        operations.append(dist.P2POp(dist.irecv, into, _global(group, peer), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _send(out: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> None:
    _swap(out, out[:0], peer, group)


def _receive(into: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> None:
    _swap(into[:0], into, peer, group)


def _add(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    wide = torch.float32 if one.dtype in (torch.float16, torch.bfloat16) else one.dtype
    return (one.to(wide) + other.to(wide)).to(one.dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
