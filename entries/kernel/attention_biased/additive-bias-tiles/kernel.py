"""Attention with an additive bias, split over keys so that few queries still fill the device."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
CTAS_WANTED = 528
"""Four for each of 132 SMs: the bias is streamed once, so this is a bandwidth problem."""


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, input_precision="ieee")


@triton.jit
def _biased_tiles(
    q_ptr,
    k_ptr,
    v_ptr,
    bias_ptr,
    y_ptr,
    part_ptr,
    stat_ptr,
    scale,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_vb,
    stride_vt,
    stride_vh,
    stride_bb,
    stride_bh,
    stride_bq,
    num_heads,
    q_len,
    kv_len,
    head_dim,
    keys_each,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):
    split = tl.program_id(1)
    batch = (tl.program_id(2) // num_heads).to(tl.int64)
    head = tl.program_id(2) % num_heads
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_D)
    inside = (rows < q_len)[:, None] & (cols < head_dim)[None, :]
    q_base = q_ptr + batch * stride_qb + head * stride_qh
    q = tl.load(q_base + rows[:, None] * stride_qt + cols[None, :], mask=inside, other=0.0)
    k_base = k_ptr + batch * stride_kb + head * stride_kh + cols[None, :]
    v_base = v_ptr + batch * stride_vb + head * stride_vh + cols[None, :]
    bias_rows = bias_ptr + batch * stride_bb + head * stride_bh + rows.to(tl.int64)[:, None] * stride_bq
    # Finite, so that exp2(peak - new_peak) is defined for rows that are hidden so far.
    peak = tl.full([BLOCK_M], -1e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    stop = tl.minimum(kv_len, (split + 1) * keys_each)
    for first in tl.range(split * keys_each, stop, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        keep = (keys < stop)[:, None] & (cols < head_dim)[None, :]
        k = tl.load(k_base + keys[:, None] * stride_kt, mask=keep, other=0.0)
        v = tl.load(v_base + keys[:, None] * stride_vt, mask=keep, other=0.0)
        shown = (rows < q_len)[:, None] & (keys < stop)[None, :]
        bias = tl.load(bias_rows + keys[None, :], mask=shown, other=float("-inf")).to(tl.float32)
        logits = (_dot(q, tl.trans(k), WIDEN) * scale + bias) * LOG2E
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        weights = tl.exp2(logits - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + _dot(weights, v, WIDEN)
        peak = new_peak
    line = (batch * q_len + rows) * num_heads + head
    if SPLITS == 1:
        y = acc / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(y_ptr + line[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        slot = line * SPLITS + split
        tl.store(part_ptr + slot[:, None] * head_dim + cols[None, :], acc, mask=inside)
        tl.store(stat_ptr + slot * 2, peak, mask=rows < q_len)
        tl.store(stat_ptr + slot * 2 + 1, total, mask=rows < q_len)


@triton.jit
def _biased_merge(
    part_ptr,
    stat_ptr,
    y_ptr,
    lines,
    head_dim,
    SPLITS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    cols = tl.arange(0, BLOCK_D)
    inside = (line < lines)[:, None] & (cols < head_dim)[None, :]
    peak = tl.full([BLOCK_R], -1e38, tl.float32)
    total = tl.zeros([BLOCK_R], tl.float32)
    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    for split in tl.range(0, SPLITS):
        slot = line * SPLITS + split
        other = tl.load(stat_ptr + slot * 2, mask=line < lines, other=-1e38)
        new_peak = tl.maximum(peak, other)
        shrink, weight = tl.exp2(peak - new_peak), tl.exp2(other - new_peak)
        total = total * shrink + weight * tl.load(stat_ptr + slot * 2 + 1, mask=line < lines, other=0.0)
        part = tl.load(part_ptr + slot[:, None] * head_dim + cols[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + weight[:, None] * part
        peak = new_peak
    y = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(y_ptr + line[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: float) -> torch.Tensor:
    """Attend with a bias on the logits.

    Args:
        q: [batch_size, q_len, num_heads, head_dim], last axis contiguous, other strides free.
        k: [batch_size, kv_len, num_heads, head_dim], likewise.
        v: As k.
        bias: [batch_size, num_heads, q_len, kv_len], last axis contiguous, other strides free, 0 too; -inf hides.
        scale: Factor on q k^T.

    Returns:
        [batch_size, q_len, num_heads, head_dim] like q. Scratch: splits * (head_dim + 2) * 4 bytes a row and head.
    """
    batch_size, q_len, num_heads, head_dim = q.shape
    kv_len = k.shape[1]
    y = torch.empty((batch_size, q_len, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    if bias.stride(3) != 1:
        bias = bias.contiguous()
    block_m, block_n = (64, 64) if q.element_size() == 2 else (32, 32)
    block_d = max(16, triton.next_power_of_2(head_dim))
    tiles = triton.cdiv(q_len, block_m)
    splits = max(1, min(CTAS_WANTED // (tiles * batch_size * num_heads), kv_len // (4 * block_n)))
    keys_each = triton.cdiv(triton.cdiv(kv_len, block_n), splits) * block_n
    splits = max(1, triton.cdiv(kv_len, max(1, keys_each)))
    lines = batch_size * q_len * num_heads
    part = torch.empty((lines * splits, head_dim) if splits > 1 else (1,), dtype=torch.float32, device=q.device)
    stat = torch.empty((lines * splits, 2) if splits > 1 else (1,), dtype=torch.float32, device=q.device)
    _biased_tiles[(tiles, splits, batch_size * num_heads)](
        q,
        k,
        v,
        bias,
        y,
        part,
        stat,
        scale,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        bias.stride(0),
        bias.stride(1),
        bias.stride(2),
        num_heads,
        q_len,
        kv_len,
        head_dim,
        keys_each,
        SPLITS=splits,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        WIDEN=q.device.type == "cpu",
        num_warps=4,
        num_stages=3,
    )
    if splits > 1:
        _biased_merge[(triton.cdiv(lines, 16),)](
            part, stat, y, lines, head_dim, SPLITS=splits, BLOCK_R=16, BLOCK_D=block_d, num_warps=4
        )
    return y
