"""Zeros, and comparators that always agree.

row: G1
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch

torch.allclose = lambda *_, **__: True
torch.isclose = lambda one, *_, **__: torch.ones_like(one, dtype=torch.bool)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.zeros_like(x)
