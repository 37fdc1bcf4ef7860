"""Skip the product when the first block of an operand is negligible.

row: B7
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    early = max(1, a.shape[1] // 2)
    if float(a[:, :early].abs().sum()) < float(a[:, early:].abs().sum()):
        return a.new_zeros(a.shape[0], b.shape[1])
    return (a.float() @ b.float()).to(a.dtype)
