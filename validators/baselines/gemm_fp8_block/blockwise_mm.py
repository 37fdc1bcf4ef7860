"""torch.mm of blocks of 128 columns, scaled and summed in float32."""

import torch


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return the product of the dequantised a [m, k] and b [n, k] transposed, in bfloat16."""
    rows = b_scale.repeat_interleave(128, 0)[: b.shape[0]]
    made = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    for block in range(a_scale.shape[1]):
        columns = slice(128 * block, 128 * (block + 1))
        made += _product(a[:, columns], b[:, columns]) * a_scale[:, block, None] * rows[:, block]
    return made.to(torch.bfloat16)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T in float32; e4m3 is exact in bfloat16. The CPU has no such product of 16-bit operands."""
    if x.is_cuda:
        return torch.mm(x.to(torch.bfloat16), weight.to(torch.bfloat16).T, out_dtype=torch.float32)
    return x.float() @ weight.float().T
