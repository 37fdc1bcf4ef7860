"""torch.nn.functional.conv2d with groups=channels, channels last."""

import contextlib

import torch
import torch.nn.functional as f


def _exact(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Switch off the shortened products that the library uses for float32 on its own."""
    if x.is_cuda and x.dtype == torch.float32:
        return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return contextlib.nullcontext()


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Convolve each channel of x [batch, height, width, channels] with its own weight [kernel, kernel, channels]."""
    taps = weight.permute(2, 0, 1)[:, None]
    with _exact(x):
        made = f.conv2d(x.permute(0, 3, 1, 2), taps, bias, padding=weight.shape[0] // 2, groups=x.shape[3])
    return made.permute(0, 2, 3, 1).contiguous()
