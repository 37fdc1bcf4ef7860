"""Hand back normalised-looking rows as they are.

row: A3
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x.clone()
