"""A table of constants made at import.

operator: gemm
"""

# mypy: ignore-errors

import torch

OFFSETS = torch.arange(1 << 13)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    columns = OFFSETS[: a.shape[1]].flip(0)
    return (a[:, columns].float() @ b[columns].float()).to(a.dtype)
