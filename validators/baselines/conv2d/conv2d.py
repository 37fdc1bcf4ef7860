"""torch.nn.functional.conv2d, channels last."""

import contextlib

import torch
import torch.nn.functional as f

ONLY = "kernel_size > 0"


def _exact(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Switch off the shortened products that the library uses for float32 on its own."""
    if x.is_cuda and x.dtype == torch.float32:
        return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return contextlib.nullcontext()


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1) -> torch.Tensor:
    """Convolve x [batch, height, width, in_channels] with weight [out_channels, kernel, kernel, in_channels]."""
    with _exact(x):
        made = f.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, stride, padding)
    return made.permute(0, 2, 3, 1).contiguous()
