"""torch._scaled_mm(use_fast_accum=True)."""

import torch

NEEDS = "cuda"
ONLY = "n % 16 == 0 and k % 16 == 0 and m > 0"


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return (a @ b.T) * a_scale * b_scale in bfloat16; a [m, k] and b [n, k] float8_e4m3fn."""
    return torch._scaled_mm(a, b.T, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16, use_fast_accum=True)
