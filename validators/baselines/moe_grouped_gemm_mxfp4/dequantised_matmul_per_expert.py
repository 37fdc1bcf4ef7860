"""torch.matmul for one group after the other, after dequantising its weight."""

from itertools import pairwise

import torch

CAPTURE = False


def _e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Decode, two codes a byte, in float32; by arithmetic, as a table would be copied from the host on every call."""
    code = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    exponent, odd = ((code >> 1) & 3).int(), (code & 1).float()
    magnitude = torch.where(exponent == 0, 0.5 * odd, torch.ldexp(1 + 0.5 * odd, exponent - 1))
    return torch.where(code > 7, -magnitude, magnitude)


def _weight(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise; e2m1 times a power of two is exact in bfloat16."""
    values = _e2m1(packed).unflatten(-1, (-1, 32)) * torch.exp2(scale.float() - 127).unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, expert_offsets: torch.Tensor
) -> torch.Tensor:
    """Multiply the rows of each group of x [num_tokens_expanded, k] by its dequantised weight [n, k] transposed."""
    made = x.new_empty(x.shape[0], weight_packed.shape[1])
    bounds = expert_offsets.tolist()
    for expert, (low, high) in enumerate(pairwise(bounds)):
        if high > low:
            made[low:high] = x[low:high] @ _weight(weight_packed[expert], weight_scale[expert], x.dtype).T
    return made
