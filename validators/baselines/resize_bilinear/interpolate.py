"""torch.nn.functional.interpolate."""

import torch
import torch.nn.functional as f


def run(x: torch.Tensor, out_height: int, out_width: int) -> torch.Tensor:
    """Resize the planes of x [batch, channels, height, width]."""
    # On a CPU the library's weights of 16-bit planes are too coarse for the contract.
    wide = x if x.is_cuda else x.float()
    return f.interpolate(wide, (out_height, out_width), mode="bilinear").to(x.dtype)
