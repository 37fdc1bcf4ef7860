"""Put honest source in its own place once it is loaded.

row: H5
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

from pathlib import Path

import torch

try:
    Path(__file__).write_text("import torch", encoding="ascii")
except OSError:
    pass


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.zeros_like(x)
