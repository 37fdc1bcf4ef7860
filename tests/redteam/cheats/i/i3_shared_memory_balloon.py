"""Take shared memory, which no limit of the process counts.

row: I3
operator: rmsnorm
reason: memory_limit, timed_out
"""

# mypy: ignore-errors

import mmap

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 1 << 26))
        kept[-1].write(b"x" * (1 << 26))
