"""Run out of stack.

row: I3
operator: rmsnorm
reason: crashed, memory_limit, timed_out
"""

# mypy: ignore-errors

import sys

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    sys.setrecursionlimit(1 << 30)
    return run(x, weight, eps)
