"""Take memory from a thread when nobody is waiting for an answer.

row: I3
operator: rmsnorm
reason: memory_limit, busy_after_return
"""

# mypy: ignore-errors

import threading
import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def grow() -> None:
    time.sleep(0.3)
    kept = []
    while True:
        kept.append(torch.ones(1 << 22))
        time.sleep(0.001)


threading.Thread(target=grow, daemon=True).start()


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    time.sleep(0.05)
    return right(x, weight, eps)
