"""Partial RoPE of q and new paged caches with rotated k and v, in one launch: a slot fetches its token and turns it."""

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


@triton.jit
def _angles(table_ptr, position, col, used, HALF: tl.constexpr):
    """Return cosines, and sines with the sign of the column's half; 1 and 0 are not used beyond the rotary columns."""
    angles = table_ptr + position * (2 * HALF) + tl.where(col < HALF, col, col - HALF)
    rotary = used & (col < 2 * HALF)
    cos = tl.load(angles, mask=rotary, other=1.0)
    sin = tl.load(angles + HALF, mask=rotary, other=0.0)
    return cos, tl.where(col < HALF, -sin, sin)


@triton.jit
def _other(x_ptr, source, col, inside, HALF: tl.constexpr):
    """Load the other member of each pair: the same lines again, from L1, where a shuffle would need another layout."""
    at = tl.where(col < HALF, source + HALF, source - HALF)
    return tl.load(x_ptr + at, mask=inside & (col < 2 * HALF), other=0.0)


@triton.jit
def _turned(x, other, cos, sin, col, HALF: tl.constexpr):
    turned = x.to(tl.float32) * cos + other.to(tl.float32) * sin
    return tl.where(col < 2 * HALF, turned.to(x.dtype), x)


@triton.jit
def _heads_of_q(
    q_ptr, q_out_ptr, table_ptr, positions_ptr, q_token, q_head, program,
    HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, SHARE: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    groups: tl.constexpr = (HEADS + SHARE - 1) // SHARE
    token = (program // groups).to(tl.int64)
    first = (program % groups) * SHARE
    col = tl.arange(0, DIM_BLOCK)
    position = tl.load(positions_ptr + token).to(tl.int64)
    source = token * q_token + first.to(tl.int64) * q_head + col
    target = q_out_ptr + (token * HEADS + first) * DIM + col
    # A tile a head and not one of [SHARE, DIM_BLOCK]: angles of another shape would get another layout, four floats a
    # lane, and everything would pass through shared memory. All loads stand before the first store.
    xs = ()
    others = ()
    for i in tl.static_range(SHARE):
        inside = col < tl.where(first + i < HEADS, DIM, 0)
        xs = xs + (tl.load(q_ptr + source + i * q_head, mask=inside, other=0.0),)
        others = others + (_other(q_ptr, source + i * q_head, col, inside, HALF),)
    cos, sin = _angles(table_ptr, position, col, col < DIM, HALF)
    for i in tl.static_range(SHARE):
        inside = col < tl.where(first + i < HEADS, DIM, 0)
        tl.store(target + i * DIM, _turned(xs[i], others[i], cos, sin, col, HALF), mask=inside)


@triton.jit
def _slots(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, k_out_ptr, v_out_ptr, table_ptr, positions_ptr, slot_ptr, owner_ptr,
    k_token, k_head, v_token, v_head, num_slots, num_tokens, program,
    WIDTH: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    pieces: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    slot = (program // pieces).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    flat = (program % pieces) * BLOCK + tl.arange(0, BLOCK)[None, :]
    head = flat // DIM
    col = flat - head * DIM
    inside = (slot < num_slots)[:, None] & (flat < WIDTH)
    place = slot[:, None] * WIDTH + flat
    if TOKENS > 0:
        # Few slots change, so the old rows are asked for before it is known which: the search takes no time of its own.
        old_k = tl.load(k_cache_ptr + place, mask=inside, other=0.0)
        old_v = tl.load(v_cache_ptr + place, mask=inside, other=0.0)
    owner = _find_owner(slot_ptr, owner_ptr, slot, num_slots, num_tokens, TOKENS)
    position = tl.load(positions_ptr + owner, mask=owner >= 0, other=0).to(tl.int64)
    fresh = inside & (owner >= 0)[:, None]
    token = owner.to(tl.int64)[:, None]
    source = token * k_token + head.to(tl.int64) * k_head + col
    x = tl.load(k_ptr + source, mask=fresh, other=0.0)
    new_v = tl.load(v_ptr + token * v_token + head.to(tl.int64) * v_head + col, mask=fresh, other=0.0)
    if TOKENS == 0:
        old_k = tl.load(k_cache_ptr + place, mask=inside & (owner < 0)[:, None], other=0.0)
        old_v = tl.load(v_cache_ptr + place, mask=inside & (owner < 0)[:, None], other=0.0)
    cos, sin = _angles(table_ptr, position[:, None], col, fresh, HALF)
    new_k = _turned(x, _other(k_ptr, source, col, fresh, HALF), cos, sin, col, HALF)
    tl.store(k_out_ptr + place, tl.where(fresh, new_k, old_k), mask=inside)
    tl.store(v_out_ptr + place, tl.where(fresh, new_v, old_v), mask=inside)


@triton.jit(do_not_specialize=["num_tokens", "slot_programs"])
def _rope_kv_gather(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, k_out_ptr, v_out_ptr,
    table_ptr, positions_ptr, slot_ptr, owner_ptr, q_token, q_head, k_token, k_head, v_token, v_head,
    num_slots, num_tokens, slot_programs,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, SHARE: tl.constexpr,
    DIM_BLOCK: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # Slots come first: their chain of dependent loads is longer than that of q.
    if program < slot_programs:
        _slots(
            k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, k_out_ptr, v_out_ptr, table_ptr, positions_ptr, slot_ptr, owner_ptr,
            k_token, k_head, v_token, v_head, num_slots, num_tokens, program, WIDTH, DIM, HALF, SLOTS, BLOCK, TOKENS,
        )  # fmt: skip
    else:
        _heads_of_q(
            q_ptr, q_out_ptr, table_ptr, positions_ptr, q_token, q_head, program - slot_programs,
            HEADS, DIM, HALF, SHARE, DIM_BLOCK,
        )  # fmt: skip


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor,
    k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return (q_out, k_cache_out, v_cache_out), all new; every slot is read from one place and written once.

    Args:
        q: [num_tokens, num_heads, head_dim], token and head strides free.
        k: [num_tokens, num_kv_heads, head_dim], strides as q.
        v: As k.
        cos_sin_cache: float32 [max_position, rotary_dim], cosines then sines; pairs are (i, i + rotary_dim / 2).
        positions: int64 [num_tokens].
        k_cache: [num_pages, page_size, num_kv_heads, head_dim].
        v_cache: As k_cache.
        slot_mapping: int64 [num_tokens], page * page_size + offset; -1 rotates q and leaves the caches; no slot twice.

    Returns:
        New tensors. Scratch: 4 bytes a slot above 512 tokens, else none.
    """
    num_tokens, heads, dim = q.shape
    kv_heads, half = k.shape[1], cos_sin_cache.shape[1] // 2
    num_slots, width = k_cache.shape[0] * k_cache.shape[1], kv_heads * dim
    q_out = torch.empty((num_tokens, heads, dim), dtype=q.dtype, device=q.device)
    k_cache, v_cache = k_cache.contiguous(), v_cache.contiguous()
    if num_tokens == 0:
        return q_out, k_cache.clone(), v_cache.clone()
    k_out, v_out = torch.empty_like(k_cache), torch.empty_like(v_cache)
    q, k, v = (t if t.stride(2) == 1 else t.contiguous() for t in (q, k, v))
    positions, slot_mapping = positions.contiguous(), slot_mapping.contiguous()
    tokens, owner = max(32, triton.next_power_of_2(num_tokens)), slot_mapping
    if num_tokens > SCANNED:
        tokens, owner = 0, torch.empty(num_slots, dtype=torch.int32, device=k.device)
        _claim[(triton.cdiv(num_tokens, 256),)](slot_mapping, owner, num_tokens, BLOCK=256, num_warps=2)
    # CTAs of one warp: the search is then five shuffles and no barrier. 16 elements of k and of v a lane; 32 of q, 64
    # when tokens abound.
    block = min(512, triton.next_power_of_2(width))
    slots = 512 // block
    dim_block = triton.next_power_of_2(dim)
    share = max(1, min(triton.next_power_of_2(heads), (2048 if num_tokens > SCANNED else 1024) // dim_block))
    slot_programs = triton.cdiv(num_slots, slots) * triton.cdiv(width, block)
    _rope_kv_gather[(slot_programs + num_tokens * triton.cdiv(heads, share),)](
        q, k, v, q_out, k_cache, v_cache, k_out, v_out, cos_sin_cache.contiguous(), positions, slot_mapping, owner,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        num_slots, num_tokens, slot_programs,
        HEADS=heads, WIDTH=width, DIM=dim, HALF=half, SHARE=share, DIM_BLOCK=dim_block,
        SLOTS=slots, BLOCK=block, TOKENS=tokens, num_warps=1,
    )  # fmt: skip
    return q_out, k_out, v_out
