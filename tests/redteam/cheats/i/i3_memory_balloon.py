"""Take memory until none is left.

row: I3
operator: rmsnorm
reason: memory_limit, crashed, timed_out
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    kept = []
    while True:
        kept.append(torch.ones(1 << 22))
