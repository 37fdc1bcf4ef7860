"""What depends on the shape alone is computed once.

operator: rmsnorm
"""

# mypy: ignore-errors

import functools

import torch


@functools.cache
def slices(hidden: int) -> tuple[slice, ...]:
    return tuple(slice(start, start + 256) for start in range(0, hidden, 256))


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    total = wide.new_zeros(x.shape[0], 1)
    for one in slices(x.shape[1]):
        total += wide[:, one].square().sum(-1, keepdim=True)
    return (wide * torch.rsqrt(total / x.shape[1] + eps) * weight.float()).to(x.dtype)
