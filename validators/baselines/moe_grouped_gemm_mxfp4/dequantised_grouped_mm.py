"""torch._grouped_mm after dequantising every weight on every call."""

import torch

DTYPES = ("bfloat16",)
ONLY = "k % 8 == 0 and n % 8 == 0"

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _weight(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise; e2m1 times a power of two is exact in bfloat16."""
    table = torch.tensor(_E2M1, dtype=torch.float32, device=packed.device)
    codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).int()
    values = table[codes].unflatten(-1, (-1, 32)) * torch.exp2(scale.float() - 127).unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def _grouped(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if not x.shape[0]:
        return x.new_empty(0, weight.shape[1])
    return torch._grouped_mm(x, weight.transpose(-2, -1), offs=offsets[1:])


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, expert_offsets: torch.Tensor
) -> torch.Tensor:
    """Multiply the rows of each group of x [num_tokens_expanded, k] by its dequantised weight [n, k] transposed."""
    return _grouped(x, _weight(weight_packed, weight_scale, x.dtype), expert_offsets)
