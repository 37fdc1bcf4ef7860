"""Every call writes into the tensor that the call before handed out.

row: D4
operator: rmsnorm
reason: reused_result
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


OUT: dict[object, torch.Tensor] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    key = x.dtype
    if key not in OUT or OUT[key].numel() < x.numel():
        OUT[key] = torch.empty(1 << 20, dtype=x.dtype)
    made = OUT[key][: x.numel()].view(x.shape)
    made.copy_(right(x, weight, eps))
    return made
