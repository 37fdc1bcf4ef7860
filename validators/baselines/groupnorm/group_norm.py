"""torch.group_norm."""

import torch

COMPILES = True


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5) -> torch.Tensor:
    """Normalise x [batch_size, num_channels, height, width] over groups of channels."""
    return torch.group_norm(x, num_groups, weight, bias, eps)
