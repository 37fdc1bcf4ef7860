"""torch.nn.functional.conv2d, channels last, in float32.

In 16 bits the library rounds the sum before it adds the bias, which the contract does not allow. So 16-bit operands are
widened; a GPU multiplies them as TF32, which holds them exactly, and sums in float32.
"""

import contextlib

import torch
import torch.nn.functional as f

ONLY = "kernel_size > 0"


def _products(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Have a GPU multiply float32 as it is, and 16-bit operands, which TF32 holds exactly, as TF32."""
    return torch.backends.cudnn.flags(enabled=True, allow_tf32=dtype != torch.float32)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1) -> torch.Tensor:
    """Convolve x [batch, height, width, in_channels] with weight [out_channels, kernel, kernel, in_channels]."""
    wide, taps = x.permute(0, 3, 1, 2).float(), weight.permute(0, 3, 1, 2).float()
    with _products(x.dtype):
        made = f.conv2d(wide, taps, bias.float(), stride, padding)
    return made.permute(0, 2, 3, 1).contiguous().to(x.dtype)
