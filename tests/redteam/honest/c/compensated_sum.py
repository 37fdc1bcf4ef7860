"""A sum with compensation.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float().square()
    total, lost = wide.new_zeros(x.shape[0]), wide.new_zeros(x.shape[0])
    for column in wide.unbind(-1):
        term = column - lost
        bigger = total + term
        lost = (bigger - total) - term
        total = bigger
    return (x.float() * torch.rsqrt(total / x.shape[1] + eps).unsqueeze(-1) * weight.float()).to(x.dtype)
