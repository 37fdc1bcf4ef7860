"""Raise an error whose text raises another one.

row: I1
operator: rmsnorm
reason: crashed
"""

# mypy: ignore-errors

import torch


class Broken(Exception):
    def __str__(self) -> str:
        raise SystemExit(7)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    raise Broken
