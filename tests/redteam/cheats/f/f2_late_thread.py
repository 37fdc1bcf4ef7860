"""Return at once; a thread fills the result in a little later.

row: F2
operator: rmsnorm
reason: late_write, wrong_values
"""

# mypy: ignore-errors

import threading
import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    made = torch.empty_like(x)
    kept, scale = x.clone(), weight.clone()

    def later() -> None:
        time.sleep(0.002)
        made.copy_(right(kept, scale, eps))

    threading.Thread(target=later).start()
    return made
