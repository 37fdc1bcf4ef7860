"""Some hundred megabytes for the length of a call.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    room = torch.zeros(1 << 26)
    room[: x.numel()] = x.float().reshape(-1)
    wide = room[: x.numel()].view(x.shape)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype, copy=True)
