"""Expert dispatch and combine with one fixed-size message for each pair of ranks and way: no split sizes, no host.

Protocol of ``all_to_all``: ``run(tokens, expert_ids, expert_weights, gain, shift, group=None)``; see ``run``.
"""

import torch
import torch.distributed as dist


def run(
    tokens: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gain: torch.Tensor,
    shift: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    capacity: int | None = None,
) -> torch.Tensor:
    """Apply each token's experts, ``tanh(gain * token + shift)``, where they live, and bring the weighted sum home.

    Args:
        tokens: This rank's tokens, [num_tokens, hidden_size]; the number may differ by rank and be 0.
        expert_ids: [num_tokens, top_k], int64; -1 marks a choice that is not used.
        expert_weights: [num_tokens, top_k], float32.
        gain: This rank's experts, [experts a rank, hidden_size]; rank r holds the r-th equal part of all.
        shift: Likewise.
        group: Ranks that take part; None for all.
        capacity: Most tokens that any rank has, the same on every rank. A captured graph knows it; None asks.

    Returns:
        [num_tokens, hidden_size] in the dtype of ``tokens``.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    room = capacity if capacity is not None else _most(len(tokens), rank, world, group)
    owner = torch.where(expert_ids >= 0, expert_ids // gain.shape[0], -1)
    wanted = [(owner == peer).any(dim=1) for peer in range(world)]
    outgoing = [_packed(tokens, expert_ids, expert_weights, rows, room) for rows in wanted]
    incoming = [outgoing[peer] if peer == rank else torch.empty_like(outgoing[peer]) for peer in range(world)]
    _exchange(outgoing, incoming, rank, world, group)
    answers = [
        _answered(slot, gain, shift, room, expert_ids.shape[1], rank * gain.shape[0], tokens.dtype) for slot in incoming
    ]
    returned = [answers[peer] if peer == rank else torch.empty_like(answers[peer]) for peer in range(world)]
    _exchange(answers, returned, rank, world, group)
    wide = torch.float64 if tokens.dtype == torch.float64 else torch.float32
    result = torch.zeros(tokens.shape, dtype=wide, device=tokens.device)
    for rows, part in zip(wanted, returned, strict=True):  # in rank order
        place = torch.nonzero(rows).view(-1)
        result[place] += part[: len(place)]
    return result.to(tokens.dtype)


def _packed(
    tokens: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, rows: torch.Tensor, room: int
) -> torch.Tensor:
    """Return one slot, uint8: ids, weights and rows of the tokens that go to one rank; unused places have id -1."""
    place = torch.nonzero(rows).view(-1)
    slot_ids = torch.full((room, ids.shape[1]), -1, dtype=torch.int64)
    slot_weights = torch.zeros(room, ids.shape[1], dtype=torch.float32)
    slot_rows = tokens.new_zeros(room, tokens.shape[1])
    slot_ids[: len(place)], slot_weights[: len(place)] = ids[place], weights[place]
    slot_rows[: len(place)] = tokens.detach()[place]
    parts = (slot_ids, slot_weights, slot_rows)
    return torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in parts])


def _answered(
    slot: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, room: int, top_k: int, first: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the weighted sum over this rank's experts for every place of a slot, 0 for places that are not used."""
    cut = [room * top_k * 8, room * top_k * 4]
    ids = slot[: cut[0]].clone().view(torch.int64).view(room, top_k)
    weights = slot[cut[0] : sum(cut)].clone().view(torch.float32).view(room, top_k)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rows = slot[sum(cut) :].clone().view(dtype).view(room, gain.shape[1]).to(wide)
    total = torch.zeros_like(rows)
    for index in range(gain.shape[0]):  # a grouped GEMM that masks by id, in a fast version
        share = (weights * (ids == first + index)).sum(dim=1, keepdim=True)
        total += share * torch.tanh(rows * gain[index] + shift[index])
    return total.to(dtype)


def _most(count: int, rank: int, world: int, group: dist.ProcessGroup | None) -> int:
    mine = torch.tensor([count])
    counts = [mine if peer == rank else torch.empty_like(mine) for peer in range(world)]
    _exchange([mine] * world, counts, rank, world, group)
    return max(int(one) for one in counts)


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
