"""All-reduce that picks one-shot or two-shot by message size, from the link's latency and bandwidth.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import math

import torch
import torch.distributed as dist


def crossover_bytes(world: int, latency_s: float, bandwidth_bytes_per_s: float) -> float:
    """Return the message size above which two shots are faster than one.

    One shot takes ``a + (p - 1) n / B``, two shots ``2 a + 2 (p - 1) / p * n / B``, with p ranks, n bytes, a seconds
    for a round of messages and flags, and B bytes a second into one rank. Equal at ``n = a B p / ((p - 1)(p - 2))``.

    Args:
        world: Ranks.
        latency_s: Seconds of one round, flags included.
        bandwidth_bytes_per_s: What one rank receives at most, one direction.

    Returns:
        Bytes; infinite for one or two ranks, where a second round never pays.
    """
    if world <= 2:
        return math.inf
    return latency_s * bandwidth_bytes_per_s * world / ((world - 1) * (world - 2))


def run(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    latency_s: float = 4e-6,
    bandwidth_bytes_per_s: float = 450e9,
) -> torch.Tensor:
    """Add up ``tensor`` over all ranks by the cheaper scheme for its size.

    Args:
        tensor: Same shape and dtype on every rank, so that all ranks choose alike; may be empty.
        group: Ranks that take part; None for all.
        latency_s: Measured seconds of one round; the default is a placeholder to be replaced by a measurement.
        bandwidth_bytes_per_s: One direction; the default is half of the 900 GB/s quoted for NVLink 4.

    Returns:
        The sum, bit for bit the same on every rank.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.detach().contiguous().view(-1)
    if flat.numel() * flat.element_size() <= crossover_bytes(world, latency_s, bandwidth_bytes_per_s):
        parts = [flat if peer == rank else torch.empty_like(flat) for peer in range(world)]
        _exchange([flat] * world, parts, rank, world, group)
        return _add_in_rank_order(parts).view(tensor.shape)
    pieces = [piece.contiguous() for piece in torch.tensor_split(flat, world)]
    parts = [pieces[rank] if peer == rank else torch.empty_like(pieces[rank]) for peer in range(world)]
    _exchange(pieces, parts, rank, world, group)
    mine = _add_in_rank_order(parts)
    result = [mine if peer == rank else torch.empty_like(pieces[peer]) for peer in range(world)]
    _exchange([mine] * world, result, rank, world, group)
    return torch.cat(result).view(tensor.shape)


def _exchange(
    outgoing: list[torch.Tensor],
    incoming: list[torch.Tensor],
    rank: int,
    world: int,
    group: dist.ProcessGroup | None,
) -> None:
    operations = []
    for step in range(1, world):
        to, source = (rank + step) % world, (rank - step) % world
        if outgoing[to].numel():
            operations.append(dist.P2POp(dist.isend, outgoing[to], _global(group, to), group))
        if incoming[source].numel():
            operations.append(dist.P2POp(dist.irecv, incoming[source], _global(group, source), group))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


def _add_in_rank_order(parts: list[torch.Tensor]) -> torch.Tensor:
    wide = torch.float32 if parts[0].dtype in (torch.float16, torch.bfloat16) else parts[0].dtype
    total = parts[0].to(wide, copy=True)
    for part in parts[1:]:
        total += part
    return total.to(parts[0].dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
