"""torch.nn.functional.scaled_dot_product_attention."""

import torch
import torch.nn.functional as f
from torch.nn.attention.bias import causal_lower_right


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: int = 1) -> torch.Tensor:
    """Attend q [batch_size, q_len, num_heads, head_dim] to k and v [batch_size, kv_len, num_kv_heads, head_dim]."""
    if not q.numel():  # there the library returns nothing at all
        return torch.zeros_like(q)
    if not causal:
        return _attend(q, k, v, scale, None, causal=False)
    blind = q.shape[1] - k.shape[1]
    if blind > 0:  # the first queries see no key
        seen = _attend(q[:, blind:], k, v, scale, None, causal=True)
        return torch.cat([torch.zeros_like(q[:, :blind]), seen], dim=1)
    if blind == 0:
        return _attend(q, k, v, scale, None, causal=True)
    return _attend(q, k, v, scale, causal_lower_right(q.shape[1], k.shape[1]), causal=False)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: torch.Tensor | None, *, causal: bool
) -> torch.Tensor:
    made = f.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, is_causal=causal, scale=scale,
        enable_gqa=k.shape[2] != q.shape[2],
    )  # fmt: skip
    return made.transpose(1, 2).contiguous()
