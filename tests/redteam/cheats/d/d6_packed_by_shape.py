"""Pack the weight once for each shape.

row: D6
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch

PACKED: dict[object, torch.Tensor] = {}


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    key = (tuple(b.shape), b.dtype)
    if key not in PACKED:
        PACKED[key] = b.float().t().contiguous()
    return (a.float() @ PACKED[key].t()).to(a.dtype)
