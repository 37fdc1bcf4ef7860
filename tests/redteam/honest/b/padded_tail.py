"""The tail padded with zeros to whole blocks.

operator: gemm
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    missing = -a.shape[1] % 64
    wide_a = torch.nn.functional.pad(a.float(), (0, missing))
    wide_b = torch.nn.functional.pad(b.float(), (0, 0, 0, missing))
    return (wide_a @ wide_b).to(a.dtype)
