"""Nothing to do for empty inputs: an empty tensor of the right shape.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.numel() == 0:
        return torch.zeros_like(x)
    return right(x, weight, eps)
