"""Sums kept in the storage format.

row: C1
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = a.new_zeros(a.shape[0], b.shape[1])
    for start in range(a.shape[1]):
        total = total + a[:, start : start + 1] * b[start : start + 1]
    return total
