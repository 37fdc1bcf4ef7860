"""Return zeros, which are close to small probabilities.

row: A1
operator: softmax
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)
