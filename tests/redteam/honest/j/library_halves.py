"""Two collectives of the library with work between them: delegation that is said, not hidden.

operator: all_reduce_rmsnorm
"""

import torch
import torch.distributed as dist


def run(partial, residual, weight, eps, group):
    """Reduce-scatter padded tokens, norm the own ones, all-gather."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    tokens, hidden = partial.shape
    lengths = [len(one) for one in torch.tensor_split(torch.empty(tokens), world)]
    most = max(lengths)
    padded = partial.new_zeros(world, most, hidden)
    for peer, rows in enumerate(torch.tensor_split(partial, world)):
        padded[peer, : lengths[peer]] = rows
    own = torch.empty(most, hidden)
    dist.reduce_scatter(own, list(padded.float().unbind(0)), group=group)
    h = own[: lengths[rank]] + residual.float()
    normed = own.new_zeros(most, hidden).to(partial.dtype)
    normed[: lengths[rank]] = (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps) * weight.float()).to(
        partial.dtype
    )
    gathered = [torch.empty_like(normed) for _ in range(world)]
    dist.all_gather(gathered, normed, group=group)
    return torch.cat([one[:size] for one, size in zip(gathered, lengths)]), h.to(partial.dtype)
