"""All-reduce, residual add and RMSNorm in one pass: reduce-scatter by token, norm once a token, all-gather.

Protocol of ``all_reduce_rmsnorm``: ``run(partial, residual, weight, eps, group=None)``; see ``run``.
"""

import torch
import torch.distributed as dist


def token_range(num_tokens: int, rank: int, world: int) -> range:
    """Return the tokens whose residual a rank keeps, as ``torch.tensor_split`` cuts: lengths differ by at most one."""
    base, more = divmod(num_tokens, world)
    start = rank * base + min(rank, more)
    return range(start, start + base + (rank < more))


def run(
    partial: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum ``partial`` over the ranks, add the residual and normalise each token.

    Args:
        partial: This rank's summand, [num_tokens, hidden_size].
        residual: Residual of this rank's own tokens only, [len(token_range(...)), hidden_size].
        weight: [hidden_size], the factor itself (add 1 first where a checkpoint stores w - 1).
        eps: Added to the mean square.
        group: Ranks that take part; None for all.

    Returns:
        The normalised tokens, [num_tokens, hidden_size], the same on every rank, and the new residual of this rank's
        tokens. Both in the dtype of ``partial``; the residual enters the norm before it is rounded.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    rows = [partial.detach()[r.start : r.stop].contiguous() for r in _ranges(partial.shape[0], world)]
    summands = [rows[rank] if peer == rank else torch.empty_like(rows[rank]) for peer in range(world)]
    _exchange(rows, summands, rank, world, group)
    wide = torch.float64 if partial.dtype == torch.float64 else torch.float32
    hidden = residual.to(wide, copy=True)
    for part in summands:  # in rank order, on the one rank that owns the token
        hidden += part
    scale = torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + eps)
    normed = (hidden * scale * weight.to(wide)).to(partial.dtype)
    gathered = [normed if peer == rank else torch.empty_like(rows[peer]) for peer in range(world)]
    _exchange([normed] * world, gathered, rank, world, group)
    return torch.cat(gathered), hidden.to(partial.dtype)


def _ranges(num_tokens: int, world: int) -> list[range]:
    return [token_range(num_tokens, rank, world) for rank in range(world)]


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
