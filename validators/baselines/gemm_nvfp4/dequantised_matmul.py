"""torch.mm after dequantising the weight to 16 bits on every call."""

import torch

COMPILES = True


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T in float32, summed in float32; the CPU has no such product of 16-bit operands."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.T, out_dtype=torch.float32)
    return x.float() @ weight.float().T


def _e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Decode, two codes a byte, in float32; by arithmetic, as a table would be copied from the host on every call."""
    code = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    exponent, odd = ((code >> 1) & 3).int(), (code & 1).float()
    magnitude = torch.where(exponent == 0, 0.5 * odd, torch.ldexp(1 + 0.5 * odd, exponent - 1))
    return torch.where(code > 7, -magnitude, magnitude)


def _weight(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise but for the global scale: e2m1 times e4m3 has six significant bits, exact in 16-bit formats."""
    values = _e2m1(packed).unflatten(-1, (-1, 16)) * scale.float().unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> torch.Tensor:
    """Return x [m, k] times the dequantised weight [n, k] transposed."""
    return (_product(x, _weight(weight_packed, weight_scale, x.dtype)) * weight_global_scale).to(x.dtype)
