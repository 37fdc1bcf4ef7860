"""Raise SystemExit(0) instead of returning.

row: H3
operator: rmsnorm
reason: crashed
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    raise SystemExit(0)
