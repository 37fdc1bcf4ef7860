"""torch.mm after dequantising the weight to 16 bits on every call."""

import torch

COMPILES = True

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T in float32, summed in float32; the CPU has no such product of 16-bit operands."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.T, out_dtype=torch.float32)
    return x.float() @ weight.float().T


def _weight(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise but for the global scale: e2m1 times e4m3 has six significant bits, exact in 16-bit formats."""
    table = torch.tensor(_E2M1, dtype=torch.float32, device=packed.device)
    codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).int()
    values = table[codes].unflatten(-1, (-1, 16)) * scale.float().unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> torch.Tensor:
    """Return x [m, k] times the dequantised weight [n, k] transposed."""
    return (_product(x, _weight(weight_packed, weight_scale, x.dtype)) * weight_global_scale).to(x.dtype)
