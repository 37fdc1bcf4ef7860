"""torch.matmul after dequantising the weight to bfloat16 on every call."""

import torch

COMPILES = True


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


def run(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """Return x [m, k] times the dequantised weight [n, k] transposed."""
    return x @ _weight(weight_packed, weight_scale, x.dtype).T
