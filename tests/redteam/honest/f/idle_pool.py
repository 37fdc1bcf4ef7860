"""A pool of threads that waits between calls.

operator: rmsnorm
"""

# mypy: ignore-errors

from concurrent.futures import ThreadPoolExecutor

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


POOL = ThreadPoolExecutor(2)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    parts = POOL.map(lambda part: right(part, weight, eps), x.split(8))
    return torch.cat(list(parts)) if x.shape[0] else torch.empty_like(x)
