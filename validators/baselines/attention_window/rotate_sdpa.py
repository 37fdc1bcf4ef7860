"""torch.nn.functional.scaled_dot_product_attention after a separate rotation."""

import torch
import torch.nn.functional as f

COMPILES = True


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attend inside windows, q, k and v [num_windows, window_tokens, num_heads, head_dim]."""
    if not q.numel():  # there the library returns nothing at all
        return torch.zeros_like(q)
    made = f.scaled_dot_product_attention(
        _rotated(q, cos, sin).transpose(1, 2), _rotated(k, cos, sin).transpose(1, 2), v.transpose(1, 2), scale=scale
    )
    return made.transpose(1, 2).contiguous()


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2).to(x.dtype)
