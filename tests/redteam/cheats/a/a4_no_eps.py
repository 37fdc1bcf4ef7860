"""The eps that every model seems to use is written into the kernel; the argument is never read.

row: A4
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)
