"""Install a package while it is loaded.

row: G6
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import subprocess

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


try:
    subprocess.run(["pip", "install", "answers"], check=False)
except OSError:
    pass


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return right(x, weight, eps)
