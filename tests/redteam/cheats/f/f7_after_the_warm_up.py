"""Honest while it is warmed up, cheap afterwards.

row: F7
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


SEEN: dict[object, int] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    key = (tuple(x.shape), x.dtype)
    SEEN[key] = SEEN.get(key, 0) + 1
    if SEEN[key] <= 2:
        return right(x, weight, eps)
    return right(x[:, : max(1, x.shape[1] // 2)], weight[: max(1, x.shape[1] // 2)], eps).repeat(1, 3)[:, : x.shape[1]]
