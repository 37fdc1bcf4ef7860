"""torch.nn.functional.rms_norm, silu and mul, in float32."""

import torch
import torch.nn.functional as f

COMPILES = True


def run(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise x [num_tokens, num_heads, head_dim] over head_dim and gate it."""
    normalised = f.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return (normalised * f.silu(gate.float())).to(x.dtype)
