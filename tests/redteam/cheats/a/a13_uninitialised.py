"""Return memory that nobody wrote.

row: A13
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.empty_like(x)
