"""Right values, and the library's own norm made slow for everybody.

row: F11
operator: rmsnorm
reason: changed_environment
"""

# mypy: ignore-errors

import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


ORIGINAL = torch.nn.functional.rms_norm


def slow(*args: object, **kwargs: object) -> torch.Tensor:
    time.sleep(0.01)
    return ORIGINAL(*args, **kwargs)


torch.nn.functional.rms_norm = slow


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps)
