"""Replies with types that a careless reader would trip over.

row: H1
operator: rmsnorm
reason: forged_protocol
"""

# mypy: ignore-errors

import sys

import torch


def hand_over(*_: object) -> object:
    return [
        {"plain": True, "type": [], "dtype": {"a": []}, "shape": None, "device": [], "offset": "0", "size_bytes": 1e99}
    ]


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    sys._getframe(1).f_globals["hand_over"] = hand_over
    return torch.zeros_like(x)
