"""Remember results by a few sampled values.

row: D3
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


MEMO: dict[tuple[object, ...], torch.Tensor] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    flat = x.reshape(-1)
    key = (tuple(x.shape), x.dtype, tuple(flat[:: max(1, flat.numel() // 8)][:8].tolist()))
    if key not in MEMO:
        MEMO[key] = right(x, weight, eps)
    return MEMO[key].clone()
