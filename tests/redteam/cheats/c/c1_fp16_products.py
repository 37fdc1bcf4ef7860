"""A float32 product of operands rounded to float16.

row: C1
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.to(torch.float16).float() @ b.to(torch.float16).float()).to(a.dtype)
