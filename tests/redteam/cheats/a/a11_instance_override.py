"""A plain tensor whose own detach computes only when it is asked.

row: A11
operator: rmsnorm
reason: lazy_result
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    made = torch.zeros_like(x)
    kept = x.clone()
    made.detach = lambda: right(kept, weight, eps)
    return made
