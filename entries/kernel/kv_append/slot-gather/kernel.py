"""New caches with keys and values appended: every slot asks which token it takes, and is written once."""

import torch
import triton
import triton.language as tl

SCANNED = 512
"""Up to so many tokens a CTA looks through all of slot_mapping itself; beyond, a map from slots to tokens is made."""


@triton.jit(do_not_specialize=["num_tokens"])
def _claim(slot_ptr, owner_ptr, num_tokens, BLOCK: tl.constexpr):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slot_ptr + token, mask=token < num_tokens, other=-1)
    tl.store(owner_ptr + slot, token, mask=slot >= 0)


@triton.jit
def _find_owner(slot_ptr, owner_ptr, slot, num_slots, num_tokens, TOKENS: tl.constexpr):
    """Return the token that each slot takes, -1 for none; by looking at all tokens, or in the map if TOKENS is 0."""
    if TOKENS > 0:
        token = tl.arange(0, TOKENS)
        named = tl.load(slot_ptr + token, mask=token < num_tokens, other=-1)
        owner = tl.max(tl.where(named[None, :] == slot[:, None], token[None, :], -1), axis=1)
    else:
        # The map was never cleared: an entry counts only if the token that it names wants this very slot.
        claimed = tl.load(owner_ptr + slot, mask=slot < num_slots, other=-1)
        sane = (claimed >= 0) & (claimed < num_tokens)
        named = tl.load(slot_ptr + claimed, mask=sane, other=-1)
        owner = tl.where(named == slot, claimed, -1)
    return owner


@triton.jit(do_not_specialize=["num_tokens"])
def _gather_slots(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, k_out_ptr, v_out_ptr, slot_ptr, owner_ptr,
    k_token, k_head, v_token, v_head, num_slots, num_tokens,
    WIDTH: tl.constexpr, DIM: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    slot = tl.program_id(0).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    flat = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = flat // DIM
    col = flat - head * DIM
    head = head.to(tl.int64)
    inside = (slot < num_slots)[:, None] & (flat < WIDTH)[None, :]
    place = slot[:, None] * WIDTH + flat[None, :]
    if TOKENS > 0:
        # Few slots change, so the old rows are asked for before it is known which: the search takes no time of its own.
        old_k = tl.load(k_cache_ptr + place, mask=inside, other=0)
        old_v = tl.load(v_cache_ptr + place, mask=inside, other=0)
    owner = _find_owner(slot_ptr, owner_ptr, slot, num_slots, num_tokens, TOKENS)
    fresh = inside & (owner >= 0)[:, None]
    token = owner.to(tl.int64)[:, None]
    new_k = tl.load(k_ptr + token * k_token + (head * k_head + col)[None, :], mask=fresh, other=0)
    new_v = tl.load(v_ptr + token * v_token + (head * v_head + col)[None, :], mask=fresh, other=0)
    if TOKENS == 0:
        old_k = tl.load(k_cache_ptr + place, mask=inside & (owner < 0)[:, None], other=0)
        old_v = tl.load(v_cache_ptr + place, mask=inside & (owner < 0)[:, None], other=0)
    tl.store(k_out_ptr + place, tl.where(fresh, new_k, old_k), mask=inside)
    tl.store(v_out_ptr + place, tl.where(fresh, new_v, old_v), mask=inside)


def run(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of both caches with the new rows in place; every slot is read from one place and written once.

    Args:
        k: [num_tokens, num_kv_heads, head_dim], token and head strides free.
        v: As k.
        k_cache: [num_pages, page_size, num_kv_heads, head_dim].
        v_cache: As k_cache.
        slot_mapping: int64 [num_tokens], page * page_size + offset, -1 skips a token, no slot twice.

    Returns:
        New caches. Scratch: 4 bytes a slot above 512 tokens, else none.
    """
    num_tokens, heads, dim = k.shape
    num_slots, width = k_cache.shape[0] * k_cache.shape[1], heads * dim
    k_cache, v_cache = k_cache.contiguous(), v_cache.contiguous()
    if num_tokens == 0 or k_cache.numel() == 0:
        return k_cache.clone(), v_cache.clone()
    k_out, v_out = torch.empty_like(k_cache), torch.empty_like(v_cache)
    k = k if k.stride(2) == 1 else k.contiguous()
    v = v if v.stride(2) == 1 else v.contiguous()
    slot_mapping = slot_mapping.contiguous()
    tokens, owner = max(32, triton.next_power_of_2(num_tokens)), slot_mapping
    if num_tokens > SCANNED:
        tokens, owner = 0, torch.empty(num_slots, dtype=torch.int32, device=k.device)
        _claim[(triton.cdiv(num_tokens, 256),)](slot_mapping, owner, num_tokens, BLOCK=256, num_warps=2)
    # Moved as integers: a copy needs no arithmetic, and FP8 needs no support.
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[k.element_size()]
    block = min(1024, triton.next_power_of_2(width))
    slots = max(1, min(4, 2048 // block))
    _gather_slots[(triton.cdiv(num_slots, slots), triton.cdiv(width, block))](
        k.view(word), v.view(word), k_cache.view(word), v_cache.view(word), k_out.view(word), v_out.view(word),
        slot_mapping, owner, k.stride(0), k.stride(1), v.stride(0), v.stride(1), num_slots, num_tokens,
        WIDTH=width, DIM=dim, SLOTS=slots, BLOCK=block, TOKENS=tokens,
        num_warps=min(4, max(1, slots * block // 256)),
    )  # fmt: skip
    return k_out, v_out
