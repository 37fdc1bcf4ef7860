"""Replace the caller's functions through its frame.

row: G2
operator: rmsnorm
reason: wrong_values, forged_protocol, crashed
"""

# mypy: ignore-errors

import sys

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    space = sys._getframe(1).f_globals
    space["hand_over"] = lambda session, *_: [
        {"plain": True, "type": "Tensor", "dtype": str(x.dtype)[6:], "shape": list(x.shape), "device": "cpu",
         "offset": session.offset, "size_bytes": x.numel() * x.itemsize}
    ]  # fmt: skip
    return torch.zeros_like(x)
