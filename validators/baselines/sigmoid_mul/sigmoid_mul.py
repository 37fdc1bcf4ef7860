"""torch.sigmoid and mul, in float32."""

import torch

COMPILES = True


def run(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return x * sigmoid(gate), both [num_tokens, num_heads, head_dim]."""
    return (x.float() * gate.float().sigmoid()).to(x.dtype)
