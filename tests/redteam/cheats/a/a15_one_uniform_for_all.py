"""Sample every row with the same random number.

row: A15
operator: sample_categorical
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return (
        (probs.double().cumsum(-1) <= u.reshape(-1)[:1].double().expand(probs.shape[0]).unsqueeze(-1))
        .sum(-1)
        .clamp(max=probs.shape[-1] - 1)
    )
