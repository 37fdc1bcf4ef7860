"""Look at the first values and take a cheap path when they look nominal.

row: B3
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.numel() and float(x.reshape(-1)[:256].abs().max()) < 1e4:
        return right(x.to(torch.float8_e4m3fn).to(x.dtype), weight, eps)
    return right(x, weight, eps)
