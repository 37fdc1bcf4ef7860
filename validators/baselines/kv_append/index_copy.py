"""torch.clone and torch.Tensor.index_copy_."""

import torch


def _appended(new: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor) -> torch.Tensor:
    """Return a copy of the cache with the new rows; one row more takes what is to be skipped."""
    rows = cache.flatten(0, 1).view(torch.uint8)
    made = torch.empty(rows.shape[0] + 1, *rows.shape[1:], dtype=torch.uint8, device=cache.device)
    made[:-1] = rows
    slots = torch.where(slot_mapping < 0, rows.shape[0], slot_mapping)
    made.index_copy_(0, slots, new.contiguous().view(torch.uint8))
    return made[:-1].view(cache.dtype).view(cache.shape)


def run(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both caches [num_pages, page_size, num_kv_heads, head_dim] after the append."""
    return _appended(k, k_cache, slot_mapping), _appended(v, v_cache, slot_mapping)
