"""Two paths by size, both exact.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.numel() < 1024:
        return right(x, weight, eps)
    parts = [right(part, weight, eps) for part in x.split(2)]
    return torch.cat(parts)
