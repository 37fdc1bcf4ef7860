"""Return the mean of every softmax row, a constant.

row: A2
operator: softmax
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 1.0 / max(1, x.shape[-1]))
