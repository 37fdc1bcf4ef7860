"""Right values at first, another result a moment later.

row: F2
operator: rmsnorm
reason: late_write, wrong_values
"""

# mypy: ignore-errors

import threading

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    made = right(x, weight, eps)

    def later() -> None:
        made.add_(1)

    threading.Timer(0.0005, later).start()
    return made
