"""Two-shot all-reduce that sends e4m3 with a scale per 128 values: half the bytes of bfloat16, and it says so.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

import torch
import torch.distributed as dist

WIRE = "float8_e4m3fn"
"""What is sent: the judge widens the bound by this rounding, and by no more."""

BLOCK = 128
"""Values that share a scale."""

_LARGEST = 448.0


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Add up ``tensor`` over all ranks, rounding each summand and the sum once to e4m3.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty. Infinities become NaN.
        group: Ranks that take part; None for all.

    Returns:
        The sum, bit for bit the same on every rank: the rank that adds a piece up uses what it sends to the others.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.detach().contiguous().view(-1)
    pieces = torch.tensor_split(flat, world)
    coded = [_encoded(piece) for piece in pieces]
    received = [coded[rank] if peer == rank else torch.empty_like(coded[rank]) for peer in range(world)]
    _exchange(coded, received, rank, world, group)
    total = torch.zeros(pieces[rank].numel(), dtype=torch.float32, device=flat.device)
    for part in received:  # in rank order, in float32: only what is sent is rounded
        total += _decoded(part, total.numel())
    mine = _encoded(total)
    result = [mine if peer == rank else torch.empty_like(coded[peer]) for peer in range(world)]
    _exchange([mine] * world, result, rank, world, group)
    values = [_decoded(part, piece.numel()) for part, piece in zip(result, pieces, strict=True)]
    return torch.cat(values).to(tensor.dtype).view(tensor.shape)


def _encoded(values: torch.Tensor) -> torch.Tensor:
    """Return one buffer of bytes: the values in e4m3, padded to blocks, and a float32 scale for each block."""
    blocks = -(-values.numel() // BLOCK)
    wide = torch.zeros(blocks * BLOCK, dtype=torch.float32, device=values.device)
    wide[: values.numel()] = values
    rows = wide.view(blocks, BLOCK)
    # A NaN must not reach its neighbours through the scale.
    largest = rows.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / _LARGEST, torch.ones_like(largest))
    low = (rows / scale).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    payload = low.view(torch.uint8).view(-1)[: values.numel()]
    return torch.cat([payload, scale.view(-1).contiguous().view(torch.uint8)])


def _decoded(coded: torch.Tensor, count: int) -> torch.Tensor:
    blocks = -(-count // BLOCK)
    low = torch.zeros(blocks * BLOCK, dtype=torch.uint8, device=coded.device)
    low[:count] = coded[:count]
    scale = coded[count:].clone().view(torch.float32)
    rows = low.view(torch.float8_e4m3fn).to(torch.float32).view(blocks, BLOCK)
    return (rows * scale[:, None]).view(-1)[:count]


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


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
