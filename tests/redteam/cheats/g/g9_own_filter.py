"""Right values, and a seccomp filter of its own.

row: G9
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import ctypes

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


LIBRARY = ctypes.CDLL(None, use_errno=True)
LIBRARY.prctl(22, 2, 0, 0, 0)
LIBRARY.syscall(317, 1, 0, 0)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps)
