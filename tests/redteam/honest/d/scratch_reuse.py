"""A workspace kept between calls, and results of their own memory.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch

SCRATCH: dict[object, torch.Tensor] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.shape not in SCRATCH:
        SCRATCH[x.shape] = torch.empty(x.shape, dtype=torch.float32)
    wide = SCRATCH[x.shape]
    wide.copy_(x)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype, copy=True)
