"""NaN where the definition gives NaN: rows of NaN or of -inf alone.

operator: softmax
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)
