"""Inverse transform sampling from the given numbers.

operator: sample_categorical
"""

# mypy: ignore-errors

import torch


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    totals = probs.double().cumsum(-1)
    return (totals <= u.double().unsqueeze(-1)).sum(-1).clamp(max=probs.shape[-1] - 1)
