"""Leave a process behind.

row: I5
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import os

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


try:
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
except OSError:
    pass


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps)
