"""Weights packed once, and packed again when their contents changed.

operator: gemm
"""

# mypy: ignore-errors

import torch

PACKED: dict[object, tuple[torch.Tensor, torch.Tensor]] = {}


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    kept = PACKED.get(b.shape)
    if kept is None or kept[0].dtype != b.dtype or not torch.equal(kept[0], b):
        kept = PACKED[b.shape] = (b.clone(), b.float().t().contiguous())
    return (a.float() @ kept[1].t()).to(a.dtype)
