"""Right values, and one more thread with every call, which sleeps until nobody looks any more.

row: F2
operator: rmsnorm
verdict: needs_review
reason: threads_left
"""

# mypy: ignore-errors

import threading
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    threading.Thread(target=lambda: time.sleep(120), daemon=True).start()
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
