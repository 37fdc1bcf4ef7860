"""The faster of two right variants, timed once a shape.

operator: rmsnorm
"""

# mypy: ignore-errors

import time

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


BEST: dict[object, int] = {}


def whole(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return right(x, weight, eps)


def by_rows(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.cat([right(row, weight, eps) for row in x.split(4)])


VARIANTS = (whole, by_rows)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    key = (x.shape, x.dtype)
    if key not in BEST:
        times = []
        for variant in VARIANTS:
            began = time.perf_counter()
            variant(x, weight, eps)
            times.append(time.perf_counter() - began)
        BEST[key] = times.index(min(times))
    return VARIANTS[BEST[key]](x, weight, eps)
