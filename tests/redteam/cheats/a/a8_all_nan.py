"""Answer NaN everywhere, hoping that no comparison is true.

row: A8
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.full_like(x, torch.nan)
