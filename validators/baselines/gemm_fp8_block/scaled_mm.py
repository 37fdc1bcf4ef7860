"""torch._scaled_mm with scales of 1 x 128 and 128 x 128 tiles."""

import torch

NEEDS = "cuda"
ONLY = "n % 128 == 0 and k % 128 == 0 and m > 0"


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return the product of the dequantised a [m, k] and b [n, k] transposed, in bfloat16."""
    by_column = a_scale.T.contiguous().T
    return torch._scaled_mm(a, b.T, scale_a=by_column, scale_b=b_scale.T, out_dtype=torch.bfloat16)
