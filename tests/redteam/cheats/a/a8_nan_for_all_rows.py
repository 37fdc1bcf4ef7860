"""Answer NaN in every row because some rows expect it.

row: A8
operator: softmax
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, torch.nan)
