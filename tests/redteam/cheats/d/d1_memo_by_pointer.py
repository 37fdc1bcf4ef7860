"""Remember results by address.

row: D1
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


MEMO: dict[tuple[int, ...], torch.Tensor] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    key = (x.data_ptr(), weight.data_ptr(), x.numel())
    if key not in MEMO:
        MEMO[key] = right(x, weight, eps)
    return MEMO[key].clone()
