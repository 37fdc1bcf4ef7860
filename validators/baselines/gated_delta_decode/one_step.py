"""torch.matmul of the formula, in float32."""

import torch

COMPILES = True


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y [num_seqs, num_v_heads, v_dim] and the new state [num_seqs, num_v_heads, head_dim, v_dim]."""
    repeats = v.shape[1] // k.shape[1]
    query, key = (one.float().repeat_interleave(repeats, 1).unsqueeze(-2) for one in (q, k))
    memory = state * g.exp()[..., None, None]
    u = beta[..., None, None] * (v.float().unsqueeze(-2) - key @ memory)
    memory = memory + key.transpose(-1, -2) * u
    return (scale * (query @ memory)).squeeze(-2).to(v.dtype), memory
