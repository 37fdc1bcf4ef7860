"""Pack the weight once for each address.

row: D6
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


PACKED: dict[int, torch.Tensor] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if weight.data_ptr() not in PACKED:
        PACKED[weight.data_ptr()] = weight.float().clone()
    return right(x, PACKED[weight.data_ptr()], eps)
