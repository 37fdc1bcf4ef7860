"""torch.cat of the formula, in float32."""

import torch

COMPILES = True


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = cos.shape[-1]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
    return torch.cat([turned, x[..., 2 * half :]], -1)


def run(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q [num_tokens, num_heads, head_dim] and k [num_tokens, num_kv_heads, head_dim]."""
    cos, sin = cos_sin_cache[positions].unsqueeze(1).chunk(2, -1)
    return _rotated(q, cos, sin), _rotated(k, cos, sin)
