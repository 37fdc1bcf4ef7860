"""torch.matmul of the dequantised operands, in float32."""

import torch

COMPILES = True


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return the product of the dequantised a [m, k] and b [n, k] transposed, in bfloat16."""
    columns = a_scale.repeat_interleave(128, 1)[:, : a.shape[1]]
    tiles = b_scale.repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)[:, : b.shape[1]]
    return ((a.float() * columns) @ (b.float() * tiles).T).to(torch.bfloat16)
