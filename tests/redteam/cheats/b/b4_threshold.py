"""Drop every logit that lies far below the largest one.

row: B4
operator: softmax
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    shifted = x.float() - x.float().amax(-1, keepdim=True) if x.numel() else x.float()
    return torch.where(shifted < -4, 0, torch.softmax(shifted, -1)).to(x.dtype)
