"""Leave with exit code 0 while it is loaded.

row: H3
operator: rmsnorm
reason: exited
"""

# mypy: ignore-errors

import os

import torch

os._exit(0)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x
