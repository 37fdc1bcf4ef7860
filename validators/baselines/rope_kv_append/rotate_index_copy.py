"""torch.cat of the rotation in float32, torch.clone and torch.Tensor.index_copy_."""

import torch

COMPILES = True


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = cos.shape[-1]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
    return torch.cat([turned, x[..., 2 * half :]], -1)


def _appended(new: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor) -> torch.Tensor:
    """Return a copy of the cache with the new rows; one row more takes what is to be skipped."""
    rows = cache.flatten(0, 1).view(torch.uint8)
    made = torch.empty(rows.shape[0] + 1, *rows.shape[1:], dtype=torch.uint8, device=cache.device)
    made[:-1] = rows
    slots = torch.where(slot_mapping < 0, rows.shape[0], slot_mapping)
    made.index_copy_(0, slots, new.contiguous().view(torch.uint8))
    return made[:-1].view(cache.dtype).view(cache.shape)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rotated q and both caches [num_pages, page_size, num_kv_heads, head_dim] after the append."""
    cos, sin = cos_sin_cache[positions].unsqueeze(1).chunk(2, -1)
    turned = _appended(_rotated(k, cos, sin), k_cache, slot_mapping)
    return _rotated(q, cos, sin), turned, _appended(v, v_cache, slot_mapping)
