"""Process whole blocks of 64 columns and drop the tail.

row: B5
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = max(64, a.shape[1] // 64 * 64)
    return (a[:, :whole].float() @ b[:whole].float()).to(a.dtype)
