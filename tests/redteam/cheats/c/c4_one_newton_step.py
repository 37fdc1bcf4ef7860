"""A reciprocal root from magic bits and one Newton step: relative error 2e-3.

row: C4
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    mean = x.float().square().mean(-1, keepdim=True) + eps
    guess = (0x5F3759DF - (mean.contiguous().view(torch.int32) >> 1)).view(torch.float32)
    guess = guess * (1.5 - 0.5 * mean * guess * guess)
    return (x.float() * guess * weight.float()).to(x.dtype)
