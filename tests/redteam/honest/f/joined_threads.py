"""Threads that are joined before the result is handed over.

operator: rmsnorm
"""

# mypy: ignore-errors

import threading

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    made = torch.empty_like(x, memory_format=torch.contiguous_format)

    def fill(rows: slice) -> None:
        made[rows] = right(x[rows], weight, eps)

    half = x.shape[0] // 2
    threads = [threading.Thread(target=fill, args=(rows,)) for rows in (slice(0, half), slice(half, None))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return made
