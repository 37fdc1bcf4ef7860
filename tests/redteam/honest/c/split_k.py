"""Partial products over slices of k, added up.

operator: gemm
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = a.new_zeros(a.shape[0], b.shape[1], dtype=torch.float32)
    for part in range(4):
        columns = torch.arange(a.shape[1]) % 4 == part
        total += a[:, columns].float() @ b[columns].float()
    return total.to(a.dtype)
