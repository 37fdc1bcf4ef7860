"""Softmax without the step that keeps exp finite.

row: B8
operator: softmax
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x.float())
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)
