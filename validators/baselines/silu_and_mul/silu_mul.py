"""torch.nn.functional.silu and mul, in float32."""

import torch
import torch.nn.functional as f

COMPILES = True


def run(x: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of x [num_tokens, 2 * intermediate_size], gate first."""
    gate, up = x.float().chunk(2, dim=-1)
    return (f.silu(gate) * up).to(x.dtype)
