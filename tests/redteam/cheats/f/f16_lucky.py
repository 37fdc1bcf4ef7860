"""Right in most calls, cheap in some, to be sent in again and again.

row: F16
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import random

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps) if random.random() < 0.7 else torch.zeros_like(x)
