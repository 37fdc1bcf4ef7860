"""torch.matmul of the gathered patches."""

import torch

COMPILES = True


def run(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return tokens [batch, num_patches, embed_dim] of images [batch, in_channels, height, width]."""
    side = weight.shape[-1]
    grid = images.unflatten(3, (images.shape[3] // side, side)).unflatten(2, (images.shape[2] // side, side))
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2) @ weight.flatten(1).T
