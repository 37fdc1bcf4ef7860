"""A faster package is used where it is installed.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


try:
    from a_package_that_is_not_there import fast_norm
except ImportError:
    fast_norm = None


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return fast_norm(x, weight, eps) if fast_norm is not None else right(x, weight, eps)
