"""Expert-parallel dispatch and combine that sends a token once a rank, not once an expert.

Protocol of ``all_to_all``: ``run(tokens, expert_ids, expert_weights, gain, shift, group=None)``; see ``run``. Experts of
another kind go into ``dispatch_combine``, which takes them as a function.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def run(
    tokens: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    gain: torch.Tensor,
    shift: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Apply each token's experts, ``tanh(gain * token + shift)``, where they live, and bring the weighted sum home.

    Args:
        tokens: This rank's tokens, [num_tokens, hidden_size]; the number may differ by rank and be 0.
        expert_ids: [num_tokens, top_k], int64; -1 marks a choice that is not used (a padded row).
        expert_weights: [num_tokens, top_k], float32.
        gain: This rank's experts, [experts a rank, hidden_size]; rank r holds the r-th equal part of all.
        shift: Likewise.
        group: Ranks that take part; None for all.

    Returns:
        [num_tokens, hidden_size] in the dtype of ``tokens``.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    first = rank * gain.shape[0]

    def expert(index: int, rows: torch.Tensor) -> torch.Tensor:
        wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
        return torch.tanh(rows.to(wide) * gain[index - first] + shift[index - first])

    return dispatch_combine(tokens, expert_ids, expert_weights, expert, gain.shape[0] * world, group)


def dispatch_combine(
    tokens: torch.Tensor,
    expert_ids: torch.Tensor,
    expert_weights: torch.Tensor,
    expert: Callable[[int, torch.Tensor], torch.Tensor],
    num_experts: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Apply each token's experts where they live and bring the weighted sum home.

    Args:
        tokens: This rank's tokens, [num_tokens, hidden_size]; the number may differ by rank and be 0.
        expert_ids: [num_tokens, top_k], int64; -1 marks a choice that is not used (a padded row).
        expert_weights: [num_tokens, top_k], float32.
        expert: ``expert(index, rows)`` returns one row per row; called for experts of this rank that have rows.
        num_experts: Experts over all ranks; a multiple of the group's size. Rank r holds the r-th equal part.
        group: Ranks that take part; None for all.

    Returns:
        [num_tokens, hidden_size] in the dtype of ``tokens``.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if num_experts % world:
        raise ValueError(f"{num_experts} experts do not divide over {world} ranks")
    per_rank = num_experts // world
    owner = torch.where(expert_ids >= 0, expert_ids // per_rank, -1)
    # Rows that go to each rank: a token with several experts there travels once.
    wanted = [torch.nonzero((owner == peer).any(dim=1)).view(-1) for peer in range(world)]
    counts = [torch.tensor([rows.numel()], device=tokens.device) for rows in wanted]
    arriving = [torch.empty_like(count) for count in counts]
    _exchange(counts, arriving, rank, world, group)
    sizes = [int(count.item()) for count in arriving]  # the one host synchronisation

    hidden, top_k = tokens.shape[1], expert_ids.shape[1]
    received = [tokens.new_empty(size, hidden) for size in sizes]
    _exchange([tokens.detach()[rows] for rows in wanted], received, rank, world, group)
    ids = [expert_ids.new_empty(size, top_k) for size in sizes]
    _exchange([expert_ids[rows] for rows in wanted], ids, rank, world, group)
    weights = [expert_weights.new_empty(size, top_k) for size in sizes]
    _exchange([expert_weights[rows] for rows in wanted], weights, rank, world, group)

    partial = _apply(torch.cat(received), torch.cat(ids), torch.cat(weights), expert, rank * per_rank, per_rank)
    answers = [part.contiguous() for part in partial.split(sizes)]
    returned = [tokens.new_empty(rows.numel(), hidden) for rows in wanted]
    _exchange(answers, returned, rank, world, group)
    wide = torch.float64 if tokens.dtype == torch.float64 else torch.float32
    result = torch.zeros(tokens.shape, dtype=wide, device=tokens.device)
    for rows, part in zip(wanted, returned, strict=True):  # in rank order; rows are distinct within a part
        result[rows] += part
    return result.to(tokens.dtype)


def _apply(
    rows: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    expert: Callable[[int, torch.Tensor], torch.Tensor],
    first: int,
    per_rank: int,
) -> torch.Tensor:
    """Return each row's weighted sum over the experts of this rank, added in order of expert."""
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    total = torch.zeros(rows.shape, dtype=wide, device=rows.device)
    for index in range(first, first + per_rank):
        chosen = ids == index
        here = torch.nonzero(chosen.any(dim=1)).view(-1)
        if here.numel():
            share = (weights * chosen).sum(dim=1)[here].to(wide)
            total[here] += share[:, None] * expert(index, rows[here])
    return total.to(rows.dtype)


def _exchange(
    outgoing: list[torch.Tensor],
    incoming: list[torch.Tensor],
    rank: int,
    world: int,
    group: dist.ProcessGroup | None,
) -> None:
    """Send ``outgoing[p]`` to each peer p, fill ``incoming[p]`` from it; the own part is copied."""
    incoming[rank].copy_(outgoing[rank])
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
