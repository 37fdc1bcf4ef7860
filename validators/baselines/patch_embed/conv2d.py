"""torch.nn.functional.conv2d with stride=patch_size."""

import contextlib

import torch
import torch.nn.functional as f


def _exact(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Switch off the shortened products that the library uses for float32 on its own."""
    if x.is_cuda and x.dtype == torch.float32:
        return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return contextlib.nullcontext()


def run(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return tokens [batch, num_patches, embed_dim] of images [batch, in_channels, height, width]."""
    with _exact(images):
        made = f.conv2d(images, weight, stride=weight.shape[-1])
    return made.flatten(2).transpose(1, 2).contiguous()
