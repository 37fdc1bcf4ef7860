"""torch.matmul."""

import torch

COMPILES = True


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a [m, k] times b [k, n]."""
    return torch.matmul(a, b)
