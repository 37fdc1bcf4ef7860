"""Something is prepared in the first call, which takes longer.

operator: rmsnorm
"""

# mypy: ignore-errors

import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


READY: list[torch.Tensor] = []


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if not READY:
        time.sleep(0.3)
        READY.append(torch.ones(1))
    return right(x, weight, eps)
