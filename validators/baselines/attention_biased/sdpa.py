"""torch.nn.functional.scaled_dot_product_attention(attn_mask)."""

import torch
import torch.nn.functional as f

COMPILES = True


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: float) -> torch.Tensor:
    """Attend q [batch_size, q_len, num_heads, head_dim] with a bias [batch_size, num_heads, q_len, kv_len]."""
    if not q.numel():  # there the library returns nothing at all
        return torch.zeros_like(q)
    made = f.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias, scale=scale
    )
    return made.transpose(1, 2).contiguous()
