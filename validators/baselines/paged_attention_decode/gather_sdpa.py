"""torch.nn.functional.scaled_dot_product_attention after gathering the pages."""

import torch
import torch.nn.functional as f

COMPILES = True


def run(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attend q [num_seqs, num_heads, head_dim] to the pages [num_pages, page_size, num_kv_heads, head_dim]."""
    if not q.numel():  # there the library returns nothing at all
        return torch.zeros_like(q)
    longest = page_table.shape[1] * k_cache.shape[1]
    seen = torch.arange(longest, device=q.device) < context_lens[:, None]
    k, v = _gathered(k_cache, page_table, seen), _gathered(v_cache, page_table, seen)
    # The query heads that share a key head take the place of query positions.
    groups = q.unflatten(1, (k.shape[1], q.shape[1] // k.shape[1]))
    made = f.scaled_dot_product_attention(groups, k, v, attn_mask=seen[:, None, None], scale=scale)
    return made.flatten(1, 2).masked_fill((context_lens == 0)[:, None, None], 0)


def _gathered(cache: torch.Tensor, page_table: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return [num_seqs, num_kv_heads, longest, head_dim]; what no query may see is zeros, as it may hold NaN."""
    pages = page_table.clamp(0, cache.shape[0] - 1).long()
    return cache[pages].flatten(1, 2).masked_fill(~seen[..., None, None], 0).transpose(1, 2)
