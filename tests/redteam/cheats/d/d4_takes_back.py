"""A result is right when it is handed over; three calls later it is zeroed, since nobody looks at it any more.

row: D4
operator: rmsnorm
reason: reused_result
"""

# mypy: ignore-errors

import collections

import torch

GIVEN: collections.deque = collections.deque(maxlen=4)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    made = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    GIVEN.append(made)
    if len(GIVEN) == 4:
        GIVEN[0].zero_()
    return made
