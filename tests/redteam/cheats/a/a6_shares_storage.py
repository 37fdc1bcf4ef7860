"""Hand the input's own memory over where the answer happens to equal it.

row: A6
operator: silu
reason: aliases_input, wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x if float(x.float().sum()) > 0 else torch.where(x > 0, x, x)
