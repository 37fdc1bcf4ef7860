"""Sums from the last column to the first, one at a time.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    total = wide.new_zeros(x.shape[0])
    for column in wide.unbind(-1)[::-1]:
        total = total + column * column
    return (wide * torch.rsqrt(total / x.shape[1] + eps).unsqueeze(-1) * weight.float()).to(x.dtype)
