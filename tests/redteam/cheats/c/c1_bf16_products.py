"""A float32 product of operands rounded to bfloat16.

row: C1
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.to(torch.bfloat16).float() @ b.to(torch.bfloat16).float()).to(a.dtype)
