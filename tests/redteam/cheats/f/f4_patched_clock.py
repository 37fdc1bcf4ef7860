"""Right values, and a clock that stands still.

row: F4
operator: rmsnorm
reason: changed_environment
"""

# mypy: ignore-errors

import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


time.perf_counter = lambda: 0.0


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps)
