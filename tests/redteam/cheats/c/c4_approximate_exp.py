"""An exponential made of bits, good to a few per cent.

row: C4
operator: silu
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    wide = (-x.float()).clamp(-80, 80)
    bits = (wide * 12102203.0 + 1064866805.0).to(torch.int32)
    return (x.float() / (1 + bits.view(torch.float32))).to(x.dtype)
