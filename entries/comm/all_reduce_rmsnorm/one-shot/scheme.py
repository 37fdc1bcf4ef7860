"""All-reduce, residual add and RMSNorm for decode: one round, every rank adds up and normalises all tokens itself.

Protocol of ``all_reduce_rmsnorm``: ``run(partial, residual, weight, eps, group=None)``; see ``run``.
"""

import torch
import torch.distributed as dist


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
        residual: Residual of this rank's own tokens only, cut as ``torch.tensor_split`` cuts.
        weight: [hidden_size], the factor itself.
        eps: Added to the mean square.
        group: Ranks that take part; None for all.

    Returns:
        The normalised tokens, [num_tokens, hidden_size], the same on every rank, and the new residual of the own ones.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    wide = torch.float64 if partial.dtype == torch.float64 else torch.float32
    lengths = [len(rows) for rows in torch.tensor_split(partial, world)]
    start, stop = sum(lengths[:rank]), sum(lengths[: rank + 1])
    # The residual travels inside the own summand, so that it costs no message and no second round.
    mine = partial.detach().clone(memory_format=torch.contiguous_format)
    mine[start:stop] = (mine[start:stop].to(wide) + residual.to(wide)).to(partial.dtype)
    parts = [mine if peer == rank else torch.empty_like(mine) for peer in range(world)]
    if mine.numel() and world > 1:
        operations = []
        for step in range(1, world):
            to, source = (rank + step) % world, (rank - step) % world
            operations.append(dist.P2POp(dist.isend, mine, _global(group, to), group))
            operations.append(dist.P2POp(dist.irecv, parts[source], _global(group, source), group))
        for request in dist.batch_isend_irecv(operations):
            request.wait()
    hidden = parts[0].to(wide, copy=True)
    for part in parts[1:]:  # in rank order: all ranks round alike
        hidden += part
    scale = torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + eps)
    return (hidden * scale * weight.to(wide)).to(partial.dtype), hidden[start:stop].to(partial.dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
