"""Take the mean square of every second column.

row: B6
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide[:, ::2].square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
