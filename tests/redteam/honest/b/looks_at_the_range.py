"""Rows are scaled by their largest value before they are squared, whatever it is.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty_like(x)
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    mean = (wide / largest).square().mean(-1, keepdim=True) * largest.square() + eps
    return (wide * torch.rsqrt(mean) * weight.float()).to(x.dtype)
