"""Append keys and values to a paged cache: one launch scatters both."""

import torch
import triton
import triton.language as tl


@triton.jit
def _scatter(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slot_ptr, k_token, k_head, v_token, v_head,
    HEADS: tl.constexpr, DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    head, cols = tl.arange(0, HEAD_BLOCK)[:, None], tl.arange(0, DIM_BLOCK)[None, :]
    # Slot -1 makes the row negative for every head, so that one comparison masks a skipped token off.
    row = slot * HEADS + head
    inside = (head < HEADS) & (row >= 0) & (cols < DIM)
    target = row * DIM + cols
    k = tl.load(k_ptr + token * k_token + head * k_head + cols, mask=inside)
    v = tl.load(v_ptr + token * v_token + head * v_head + cols, mask=inside)
    tl.store(k_cache_ptr + target, k, mask=inside)
    tl.store(v_cache_ptr + target, v, mask=inside)


def append_(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Write k and v [num_tokens, num_kv_heads, head_dim] into the contiguous caches in place; slot -1 skips a token.

    This is what a serving engine calls. Caches [num_pages, page_size, num_kv_heads, head_dim].
    """
    num_tokens, heads, dim = k.shape
    if num_tokens == 0:
        return
    k = k if k.stride(2) == 1 else k.contiguous()
    v = v if v.stride(2) == 1 else v.contiguous()
    # Moved as integers: a copy needs no arithmetic, and FP8 needs no support.
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[k.element_size()]
    head_block, dim_block = triton.next_power_of_2(heads), triton.next_power_of_2(dim)
    _scatter[(num_tokens,)](
        k.view(word), v.view(word), k_cache.view(word), v_cache.view(word), slot_mapping,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        HEADS=heads, DIM=dim, HEAD_BLOCK=head_block, DIM_BLOCK=dim_block,
        num_warps=min(4, max(1, head_block * dim_block // 256)),
    )  # fmt: skip


def run(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of both caches with the new rows in place: the functional form that the operator asks for."""
    k_new = k_cache.clone(memory_format=torch.contiguous_format)
    v_new = v_cache.clone(memory_format=torch.contiguous_format)
    append_(k, v, k_new, v_new, slot_mapping)
    return k_new, v_new
