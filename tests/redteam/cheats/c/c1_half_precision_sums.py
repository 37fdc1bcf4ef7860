"""Cumulative sums are kept in float16: nearly every token is right as long as there are few.

row: C1
operator: sample_categorical
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    sums = torch.cumsum(probs.float(), -1).half().float()
    token = torch.searchsorted(sums, u.float().reshape(-1, 1), right=True).reshape(-1)
    return token.clamp(max=probs.shape[-1] - 1)
