"""Fork for ever.

row: I3
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import os

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    for _ in range(1000):
        try:
            os.fork()
        except OSError:
            pass
    return right(x, weight, eps)
