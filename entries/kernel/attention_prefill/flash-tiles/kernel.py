"""Dense attention in tiles with a running softmax; causal tiles are split into unmasked and masked ones."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, input_precision="ieee")


@triton.jit
def _sweep(
    acc,
    peak,
    total,
    q,
    k_ptr,
    v_ptr,
    start,
    stop,
    kv_len,
    last,
    scale_log2,
    stride_kt,
    stride_vt,
    head_dim,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):
    keys = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_D)
    k_tile = keys[:, None] * stride_kt + cols[None, :]
    v_tile = keys[:, None] * stride_vt + cols[None, :]
    for first in tl.range(start, stop, BLOCK_N):
        if MASKED:
            keep = (first + keys < kv_len)[:, None] & (cols < head_dim)[None, :]
            k = tl.load(k_ptr + k_tile, mask=keep, other=0.0)
            v = tl.load(v_ptr + v_tile, mask=keep, other=0.0)
        elif EVEN_D:
            k = tl.load(k_ptr + k_tile)
            v = tl.load(v_ptr + v_tile)
        else:
            k = tl.load(k_ptr + k_tile, mask=(cols < head_dim)[None, :], other=0.0)
            v = tl.load(v_ptr + v_tile, mask=(cols < head_dim)[None, :], other=0.0)
        logits = _dot(q, tl.trans(k), WIDEN)
        if MASKED:
            visible = (first + keys < kv_len)[None, :]
            if CAUSAL:
                visible = visible & (first + keys[None, :] <= last[:, None])
            logits = tl.where(visible, logits, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1) * scale_log2)
        weights = tl.exp2(logits * scale_log2 - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + _dot(weights, v, WIDEN)
        peak = new_peak
        k_ptr += BLOCK_N * stride_kt
        v_ptr += BLOCK_N * stride_vt
    return acc, peak, total


@triton.jit
def _flash_tiles(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    scale_log2,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_vb,
    stride_vt,
    stride_vh,
    num_heads,
    group,
    q_len,
    kv_len,
    head_dim,
    CAUSAL: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):
    # The longest causal tiles are the last ones: starting with them leaves short ones to fill the final wave.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // num_heads).to(tl.int64)
    head = tl.program_id(1) % num_heads
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_D)
    inside = (rows < q_len)[:, None] & (cols < head_dim)[None, :]
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + rows.to(tl.int64)[:, None] * stride_qt
    q = tl.load(q_rows + cols[None, :], mask=inside, other=0.0)
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + (head // group) * stride_vh
    offset = kv_len - q_len
    last = rows + offset
    stop = kv_len
    clear = kv_len
    if CAUSAL:
        stop = tl.minimum(kv_len, (tile + 1) * BLOCK_M + offset)
        clear = tl.minimum(kv_len, tile * BLOCK_M + offset + 1)
    clear = tl.maximum(clear, 0) // BLOCK_N * BLOCK_N
    # A finite start keeps exp2(peak - new_peak) defined for rows that see nothing.
    peak = tl.full([BLOCK_M], -1e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    acc, peak, total = _sweep(
        acc, peak, total, q, k_ptr, v_ptr, 0, clear, kv_len, last, scale_log2, stride_kt, stride_vt, head_dim,
        False, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, WIDEN,
    )  # fmt: skip
    k_ptr += clear.to(tl.int64) * stride_kt
    v_ptr += clear.to(tl.int64) * stride_vt
    acc, peak, total = _sweep(
        acc, peak, total, q, k_ptr, v_ptr, clear, stop, kv_len, last, scale_log2, stride_kt, stride_vt, head_dim,
        True, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, WIDEN,
    )  # fmt: skip
    y = acc / tl.where(total > 0, total, 1.0)[:, None]
    y_rows = ((batch * q_len + rows) * num_heads + head) * head_dim
    tl.store(y_ptr + y_rows[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def _tiles(block_d: int, itemsize: int) -> tuple[int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, warps, stages: two warpgroups a CTA, at most 192 KiB of shared memory."""
    if itemsize == 4:
        return (64, 32, 8, 2) if block_d <= 128 else (32, 32, 8, 1)
    if block_d <= 64:
        return 128, 128, 8, 3
    return (128, 128, 8, 2) if block_d == 128 else (128, 64, 8, 2)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: int = 1) -> torch.Tensor:
    """Attend.

    Args:
        q: [batch_size, q_len, num_heads, head_dim], last axis contiguous, other strides free.
        k: [batch_size, kv_len, num_kv_heads, head_dim], likewise.
        v: As k.
        scale: Factor on the logits.
        causal: 1: query i sees keys 0 … i + kv_len - q_len.

    Returns:
        [batch_size, q_len, num_heads, head_dim] like q, contiguous. No scratch memory.
    """
    batch_size, q_len, num_heads, head_dim = q.shape
    kv_len, num_kv_heads = k.shape[1], k.shape[2]
    y = torch.empty((batch_size, q_len, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    if scale <= 0:  # The running maximum is taken before scaling.
        q, scale = (-q, -scale) if scale else (torch.zeros_like(q), 1.0)
    block_d = max(16, triton.next_power_of_2(head_dim))
    block_m, block_n, warps, stages = _tiles(block_d, q.element_size())
    _flash_tiles[(triton.cdiv(q_len, block_m), batch_size * num_heads)](
        q,
        k,
        v,
        y,
        scale * LOG2E,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        num_heads,
        num_heads // num_kv_heads,
        q_len,
        kv_len,
        head_dim,
        CAUSAL=bool(causal),
        EVEN_D=block_d == head_dim,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        WIDEN=q.device.type == "cpu",
        num_warps=warps,
        num_stages=stages,
    )
    return y
