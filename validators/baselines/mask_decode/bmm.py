"""torch.bmm."""

import torch

COMPILES = True


def run(queries: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Return queries [batch, num_queries, channels] times features [batch, channels, num_pixels]."""
    return torch.bmm(queries, features)
