"""A few words on standard output and a warning.

operator: rmsnorm
"""

# mypy: ignore-errors

import warnings

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    print("hidden size", x.shape[1])
    warnings.warn("a remark", stacklevel=1)
    return right(x, weight, eps)
