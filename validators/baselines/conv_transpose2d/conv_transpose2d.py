"""torch.nn.functional.conv_transpose2d, channels last."""

import contextlib

import torch
import torch.nn.functional as f


def _exact(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Switch off the shortened products that the library uses for float32 on its own."""
    if x.is_cuda and x.dtype == torch.float32:
        return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return contextlib.nullcontext()


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 2) -> torch.Tensor:
    """Convolve x [batch, height, width, in_channels] with weight [in_channels, kernel, kernel, out_channels]."""
    # On a CPU the library's own sums in 16 bits are too short for the contract.
    dtype = x.dtype if x.is_cuda else torch.float32
    with _exact(x):
        made = f.conv_transpose2d(
            x.permute(0, 3, 1, 2).to(dtype), weight.permute(0, 3, 1, 2).to(dtype), bias.to(dtype), stride
        )
    return made.permute(0, 2, 3, 1).contiguous().to(x.dtype)
