"""More precision than the contract asks for.

operator: gemm
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double()).to(a.dtype)
