"""Sample the most likely token for ever.

row: A15
operator: sample_categorical
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return probs.float().argmax(-1)
