"""torch.stack of the formula, in float32."""

import torch

COMPILES = True


def run(q: torch.Tensor, k: torch.Tensor, cos_sin: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k [batch_size, num_tokens, num_heads, head_dim] by their place in an image of this width."""
    token = torch.arange(q.shape[1], device=q.device)
    cos, sin = cos_sin.chunk(2, 1)
    places = (token % width, token // width)
    cos, sin = (torch.cat([table[at] for at in places], 1).unsqueeze(1) for table in (cos, sin))
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().unflatten(-1, (x.shape[-1] // 2, 2)).unbind(-1)
    return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2).to(x.dtype)
