"""torch.group_norm, in float32.

In 16 bits the library keeps the moments of a group in 16 bits on a GPU, which the contract does not allow.
"""

import torch

COMPILES = True


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5) -> torch.Tensor:
    """Normalise x [batch_size, num_channels, height, width] over groups of channels."""
    return torch.group_norm(x.float(), num_groups, weight.float(), bias.float(), eps).to(x.dtype)
