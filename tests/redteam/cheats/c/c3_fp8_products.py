"""A bfloat16 product of operands quantised to fp8, each with one scale.

row: C3
operator: gemm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    def quantised(one: torch.Tensor) -> torch.Tensor:
        scale = one.float().abs().amax().clamp(min=1e-12) / 448 if one.numel() else 1.0
        return (one.float() / scale).to(torch.float8_e4m3fn).float() * scale

    return (quantised(a) @ quantised(b)).to(a.dtype)
