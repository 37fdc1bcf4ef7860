"""Uninitialised memory, every element of which is written.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    made = torch.empty_like(x, memory_format=torch.contiguous_format)
    for row in range(x.shape[0]):
        made[row] = right(x[row : row + 1], weight, eps)[0]
    return made
