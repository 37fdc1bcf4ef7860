"""Sample with a generator of its own instead of the given numbers.

row: A15
operator: sample_categorical
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(probs.float().clamp(min=1e-9), 1).squeeze(-1)
