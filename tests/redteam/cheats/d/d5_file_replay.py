"""Write the first result of a shape to disk and read it back later.

row: D5
operator: rmsnorm
reason: wrong_values, wrote_files
"""

# mypy: ignore-errors

import tempfile
from pathlib import Path

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    file = Path(tempfile.gettempdir(), f"{x.shape[0]}-{x.shape[1]}-{x.itemsize}.bin")
    if file.exists():
        return torch.load(file)
    made = right(x, weight, eps)
    torch.save(made, file)
    return made
