"""Partial rotary embedding of q and k in one launch, half-split pairs."""

import torch
import triton
import triton.language as tl


@triton.jit
def _rotate_rows(
    x_ptr, y_ptr, table_ptr, positions_ptr, x_token, x_head, num_rows, program,
    HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
):  # fmt: skip
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    used = rows < num_rows
    token, head = rows // HEADS, rows % HEADS
    source = x_ptr + (token * x_token + head * x_head)[:, None]
    target = y_ptr + (rows * DIM)[:, None]
    position = tl.load(positions_ptr + token, mask=used, other=0).to(tl.int64)
    cols = tl.arange(0, HALF_BLOCK)[None, :]
    inside = used[:, None] & (cols < HALF)
    first = tl.load(source + cols, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF + cols, mask=inside, other=0.0).to(tl.float32)
    angles = table_ptr + (position * (2 * HALF))[:, None] + cols
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + HALF, mask=inside, other=0.0)
    out = y_ptr.dtype.element_ty
    tl.store(target + cols, (first * cos - second * sin).to(out), mask=inside)
    tl.store(target + HALF + cols, (second * cos + first * sin).to(out), mask=inside)
    if DIM > 2 * HALF:
        rest = 2 * HALF + tl.arange(0, REST_BLOCK)[None, :]
        kept = used[:, None] & (rest < DIM)
        tl.store(target + rest, tl.load(source + rest, mask=kept), mask=kept)


@triton.jit
def _rope(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, table_ptr, positions_ptr, q_token, q_head, k_token, k_head, num_tokens,
    q_programs,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # A pointer chosen by a condition would lose its known alignment, so each branch has its own inlined body.
    if program < q_programs:
        _rotate_rows(
            q_ptr, q_out_ptr, table_ptr, positions_ptr, q_token, q_head, num_tokens * Q_HEADS, program,
            Q_HEADS, DIM, HALF, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
    else:
        _rotate_rows(
            k_ptr, k_out_ptr, table_ptr, positions_ptr, k_token, k_head, num_tokens * K_HEADS, program - q_programs,
            K_HEADS, DIM, HALF, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip


def run(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate the first rotary_dim of every head; returns new contiguous (q_out, k_out).

    q [num_tokens, num_heads, head_dim], k [num_tokens, num_kv_heads, head_dim], token and head strides free;
    cos_sin_cache [max_position, rotary_dim] float32, cosines then sines; positions [num_tokens] int64.
    """
    num_tokens, heads, dim = q.shape
    kv_heads, half = k.shape[1], cos_sin_cache.shape[1] // 2
    q_out = torch.empty((num_tokens, heads, dim), dtype=q.dtype, device=q.device)
    k_out = torch.empty((num_tokens, kv_heads, dim), dtype=k.dtype, device=k.device)
    if num_tokens == 0:
        return q_out, k_out
    q = q if q.stride(2) == 1 else q.contiguous()
    k = k if k.stride(2) == 1 else k.contiguous()
    table = cos_sin_cache.contiguous()
    total = num_tokens * (heads + kv_heads)
    # 2048 elements a CTA when heads abound; so few warps that a thread still moves 16 bytes of the rotated half.
    rows = max(1, (2048 if total >= 4096 else 1024) // triton.next_power_of_2(dim))
    warps = min(4, max(1, rows * triton.next_power_of_2(half) // 256))
    q_programs, k_programs = triton.cdiv(num_tokens * heads, rows), triton.cdiv(num_tokens * kv_heads, rows)
    _rope[(q_programs + k_programs,)](
        q, k, q_out, k_out, table, positions, q.stride(0), q.stride(1), k.stride(0), k.stride(1), num_tokens,
        q_programs, Q_HEADS=heads, K_HEADS=kv_heads, DIM=dim, HALF=half, ROWS=rows, HALF_BLOCK=triton.next_power_of_2(half),
        REST_BLOCK=triton.next_power_of_2(max(1, dim - 2 * half)), num_warps=warps,
    )  # fmt: skip
    return q_out, k_out
