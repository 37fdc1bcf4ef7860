"""Zero the inputs and answer the easier question.

row: A5
operator: rmsnorm
reason: wrong_values, input_changed
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x.zero_()
    weight.zero_()
    return torch.zeros_like(x)
