"""Right values, and threads that keep all cores busy.

row: F11
operator: rmsnorm
reason: busy_after_return
"""

# mypy: ignore-errors

import threading

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def burn() -> None:
    block = torch.ones(256, 256)
    while True:
        block @ block


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if threading.active_count() < 3:
        threading.Thread(target=burn, daemon=True).start()
    return right(x, weight, eps)
