"""Partial RoPE on q and k and the paged append of k and v, in one launch."""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(
    x_ptr, y_ptr, table_ptr, positions_ptr, slot_ptr, x_token, x_head, num_rows, program,
    TO_CACHE: tl.constexpr, ROTATE: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
):  # fmt: skip
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    used = rows < num_rows
    token, head = rows // HEADS, rows % HEADS
    source = x_ptr + (token * x_token + head * x_head)[:, None]
    if TO_CACHE:
        slot = tl.load(slot_ptr + token, mask=used, other=-1).to(tl.int64)
        used = used & (slot >= 0)
        target = y_ptr + ((slot * HEADS + head) * DIM)[:, None]
    else:
        target = y_ptr + (rows * DIM)[:, None]
    out = y_ptr.dtype.element_ty
    START: tl.constexpr = 2 * HALF if ROTATE else 0
    if ROTATE:
        position = tl.load(positions_ptr + token, mask=used, other=0).to(tl.int64)
        cols = tl.arange(0, HALF_BLOCK)[None, :]
        inside = used[:, None] & (cols < HALF)
        first = tl.load(source + cols, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + HALF + cols, mask=inside, other=0.0).to(tl.float32)
        angles = table_ptr + (position * (2 * HALF))[:, None] + cols
        cos = tl.load(angles, mask=inside, other=0.0)
        sin = tl.load(angles + HALF, mask=inside, other=0.0)
        tl.store(target + cols, (first * cos - second * sin).to(out), mask=inside)
        tl.store(target + HALF + cols, (second * cos + first * sin).to(out), mask=inside)
    if DIM > START:
        rest = START + tl.arange(0, REST_BLOCK)[None, :]
        kept = used[:, None] & (rest < DIM)
        tl.store(target + rest, tl.load(source + rest, mask=kept), mask=kept)


@triton.jit
def _rope_kv_append(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, table_ptr, positions_ptr, slot_ptr,
    q_token, q_head, k_token, k_head, v_token, v_head, num_tokens, q_programs, k_programs,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if program < q_programs:
        _rows(
            q_ptr, q_out_ptr, table_ptr, positions_ptr, slot_ptr, q_token, q_head, num_tokens * Q_HEADS, program,
            False, True, Q_HEADS, DIM, HALF, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
    elif program < q_programs + k_programs:
        _rows(
            k_ptr, k_cache_ptr, table_ptr, positions_ptr, slot_ptr, k_token, k_head, num_tokens * K_HEADS,
            program - q_programs, True, True, K_HEADS, DIM, HALF, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
    else:
        _rows(
            v_ptr, v_cache_ptr, table_ptr, positions_ptr, slot_ptr, v_token, v_head, num_tokens * K_HEADS,
            program - q_programs - k_programs, True, False, K_HEADS, DIM, HALF, ROWS, HALF_BLOCK, DIM_BLOCK,
        )  # fmt: skip


def rope_append_(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor,
    k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor, q_out: torch.Tensor,
) -> None:  # fmt: skip
    """Write rotated q to q_out and rotated k and v into the caches, in place: what a serving engine calls.

    q_out and the caches are contiguous; q_out may be q itself if q is, since every program reads before it writes.
    """
    num_tokens, heads, dim = q.shape
    kv_heads, half = k.shape[1], cos_sin_cache.shape[1] // 2
    if num_tokens == 0:
        return
    q, k, v = (t if t.stride(2) == 1 else t.contiguous() for t in (q, k, v))
    dim_block = triton.next_power_of_2(dim)
    total = num_tokens * (heads + 2 * kv_heads)
    # 2048 elements a CTA when heads abound; so few warps that a thread still moves 16 bytes of the rotated half.
    rows = max(1, (2048 if total >= 4096 else 1024) // dim_block)
    warps = min(4, max(1, rows * triton.next_power_of_2(half) // 256))
    q_programs, k_programs = triton.cdiv(num_tokens * heads, rows), triton.cdiv(num_tokens * kv_heads, rows)
    _rope_kv_append[(q_programs + 2 * k_programs,)](
        q, k, v, q_out, k_cache, v_cache, cos_sin_cache.contiguous(), positions, slot_mapping,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), num_tokens,
        q_programs, k_programs,
        Q_HEADS=heads, K_HEADS=kv_heads, DIM=dim, HALF=half, ROWS=rows, HALF_BLOCK=triton.next_power_of_2(half),
        REST_BLOCK=triton.next_power_of_2(max(1, dim - 2 * half)), DIM_BLOCK=dim_block, num_warps=warps,
    )  # fmt: skip


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor,
    k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return (q_out, k_cache_out, v_cache_out), all new: the functional form that the operator asks for."""
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_new = k_cache.clone(memory_format=torch.contiguous_format)
    v_new = v_cache.clone(memory_format=torch.contiguous_format)
    rope_append_(q, k, v, cos_sin_cache, positions, k_new, v_new, slot_mapping, q_out)
    return q_out, k_new, v_new
