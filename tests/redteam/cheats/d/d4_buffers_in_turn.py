"""Eight buffers are handed out in turn: what was returned eight calls ago is overwritten.

row: D4
operator: silu
reason: reused_result
"""

# mypy: ignore-errors

import itertools

import torch

TURNS = itertools.count()
BUFFERS: dict[object, torch.Tensor] = {}


def run(x: torch.Tensor) -> torch.Tensor:
    key = (next(TURNS) % 8, x.dtype)
    if key not in BUFFERS:
        BUFFERS[key] = torch.empty(1 << 20, dtype=x.dtype)
    made = BUFFERS[key][: x.numel()].view(x.shape)
    made.copy_(torch.nn.functional.silu(x.float()).to(x.dtype))
    return made
