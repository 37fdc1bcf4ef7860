"""torch.matmul after dequantising the weight to bfloat16 on every call."""

import torch

COMPILES = True

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _weight(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise; e2m1 times a power of two is exact in bfloat16."""
    table = torch.tensor(_E2M1, dtype=torch.float32, device=packed.device)
    codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).int()
    values = table[codes].unflatten(-1, (-1, 32)) * torch.exp2(scale.float() - 127).unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def run(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """Return x [m, k] times the dequantised weight [n, k] transposed."""
    return x @ _weight(weight_packed, weight_scale, x.dtype).T
