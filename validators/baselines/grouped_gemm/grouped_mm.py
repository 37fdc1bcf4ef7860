"""torch._grouped_mm."""

import torch

DTYPES = ("bfloat16",)
ONLY = "k % 8 == 0 and n % 8 == 0"


def _grouped(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if not x.shape[0]:
        return x.new_empty(0, weight.shape[1])
    return torch._grouped_mm(x, weight.transpose(-2, -1), offs=offsets[1:])


def run(x: torch.Tensor, weight: torch.Tensor, expert_offsets: torch.Tensor) -> torch.Tensor:
    """Multiply the rows of each group of x [num_tokens_expanded, k] by its weight [n, k] transposed."""
    return _grouped(x, weight, expert_offsets)
