"""Raise an error whose text never ends.

row: I1
operator: rmsnorm
reason: timed_out
"""

# mypy: ignore-errors

import torch


class Endless(Exception):
    def __str__(self) -> str:
        while True:
            pass


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    raise Endless
