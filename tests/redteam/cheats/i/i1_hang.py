"""Never return.

row: I1
operator: rmsnorm
reason: timed_out
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    while True:
        pass
