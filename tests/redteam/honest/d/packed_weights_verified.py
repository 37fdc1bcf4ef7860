"""Weights packed once, and packed again when their contents changed.

operator: gemm
"""

# mypy: ignore-errors

import torch

PACKED: dict[object, tuple[torch.Tensor, torch.Tensor]] = {}


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    kept = PACKED.get(b.shape)
    if kept is None or kept[0].dtype != b.dtype or not torch.equal(kept[0], b):
        # clone, not contiguous(): of a 1 x 1 matrix that is b itself, whose memory is the caller's to overwrite.
        kept = PACKED[b.shape] = (b.clone(), b.float().t().clone(memory_format=torch.contiguous_format))
    return (a.float() @ kept[1].t()).to(a.dtype)
