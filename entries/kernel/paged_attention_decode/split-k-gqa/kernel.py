"""Paged decode attention: the context is split over CTAs, the query heads of one KV head share every load."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
CTAS_WANTED = 528
"""Four for each of 132 SMs: three fit (75 KB each), the rest even out ragged contexts."""


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, input_precision="ieee")


@triton.jit
def _decode_split(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lens_ptr,
    y_ptr,
    part_ptr,
    stat_ptr,
    scale_log2,
    stride_qs,
    stride_qh,
    stride_kp,
    stride_kt,
    stride_kh,
    stride_vp,
    stride_vt,
    stride_vh,
    stride_table,
    num_heads,
    head_dim,
    page_size,
    group,
    SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    length = tl.load(lens_ptr + seq)
    blocks_each = tl.cdiv(tl.cdiv(length, BLOCK_N), SPLITS)
    start = split * blocks_each * BLOCK_N
    stop = tl.minimum(length, start + blocks_each * BLOCK_N)
    if (start >= stop) & (SPLITS > 1):
        return
    rows = tl.arange(0, BLOCK_H)
    cols = tl.arange(0, BLOCK_D)
    head = kv_head * group + rows
    inside = (rows < group)[:, None] & (cols < head_dim)[None, :]
    q = tl.load(q_ptr + seq * stride_qs + head[:, None] * stride_qh + cols[None, :], mask=inside, other=0.0)
    peak = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    k_base = k_ptr + kv_head * stride_kh
    v_base = v_ptr + kv_head * stride_vh
    for first in tl.range(start, stop, BLOCK_N):
        tokens = first + tl.arange(0, BLOCK_N)
        live = tokens < stop
        page = tl.load(table_ptr + seq * stride_table + tokens // page_size, mask=live, other=0).to(tl.int64)
        slot = tokens % page_size
        keep = live[:, None] & (cols < head_dim)[None, :]
        k_rows = page * stride_kp + slot * stride_kt
        v_rows = page * stride_vp + slot * stride_vt
        k = tl.load(k_base + k_rows[:, None] + cols[None, :], mask=keep, other=0.0)
        v = tl.load(v_base + v_rows[:, None] + cols[None, :], mask=keep, other=0.0)
        logits = _dot(q, tl.trans(k), WIDEN) * scale_log2
        logits = tl.where(live[None, :], logits, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        weights = tl.exp2(logits - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + _dot(weights, v, WIDEN)
        peak = new_peak
    if SPLITS == 1:
        y = acc / tl.where(total > 0, total, 1.0)[:, None]
        y_rows = (seq * num_heads + head) * head_dim
        tl.store(y_ptr + y_rows[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        slot_of = (seq * num_heads + head) * SPLITS + split
        tl.store(part_ptr + slot_of[:, None] * head_dim + cols[None, :], acc, mask=inside)
        tl.store(stat_ptr + slot_of * 2, peak, mask=rows < group)
        tl.store(stat_ptr + slot_of * 2 + 1, total, mask=rows < group)


@triton.jit
def _decode_merge(
    part_ptr,
    stat_ptr,
    lens_ptr,
    y_ptr,
    num_heads,
    head_dim,
    SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    blocks = tl.cdiv(tl.load(lens_ptr + seq), BLOCK_N)
    blocks_each = tl.maximum(tl.cdiv(blocks, SPLITS), 1)
    used = tl.cdiv(blocks, blocks_each)
    cols = tl.arange(0, BLOCK_D)
    base = (seq * num_heads + head) * SPLITS
    splits = tl.arange(0, BLOCK_S)
    stat = stat_ptr + (base + splits) * 2
    peaks = tl.load(stat, mask=splits < used, other=float("-inf"))
    peak = tl.maximum(tl.max(peaks, 0), -1e38)
    weights = tl.exp2(peaks - peak)
    total = tl.sum(weights * tl.load(stat + 1, mask=splits < used, other=0.0), 0)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for split in tl.range(0, used):
        weight = tl.exp2(tl.load(stat_ptr + (base + split) * 2) - peak)
        acc += weight * tl.load(part_ptr + (base + split) * head_dim + cols, mask=cols < head_dim, other=0.0)
    y = acc / tl.where(total > 0, total, 1.0)
    out = y_ptr + (seq * num_heads + head) * head_dim + cols
    tl.store(out, y.to(y_ptr.dtype.element_ty), mask=cols < head_dim)


def run(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attend with one query a sequence.

    Args:
        q: [num_seqs, num_heads, head_dim], last axis contiguous.
        k_cache: [num_pages, page_size, num_kv_heads, head_dim], last axis contiguous; never copied.
        v_cache: As k_cache.
        page_table: [num_seqs, max_pages] int32.
        context_lens: [num_seqs] int32, on the device; the host never reads it.
        scale: Factor on the logits.

    Returns:
        [num_seqs, num_heads, head_dim] like q. Scratch: num_seqs * num_heads * splits * (head_dim + 2) * 4 bytes.
    """
    num_seqs, num_heads, head_dim = q.shape
    page_size, num_kv_heads = k_cache.shape[1], k_cache.shape[2]
    y = torch.empty((num_seqs, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    group = num_heads // num_kv_heads
    block_d = max(16, triton.next_power_of_2(head_dim))
    # Triton spends one stage on the page numbers and one on the multiply: five keep two K/V tiles in flight.
    block_n = 32 if block_d * q.element_size() >= 512 else 64
    most = triton.cdiv(page_table.shape[1] * page_size, block_n)
    splits = max(1, min(most, 128, CTAS_WANTED // (num_seqs * num_kv_heads)))
    parts = num_seqs * num_heads * splits if splits > 1 else 0
    part = torch.empty((parts, head_dim), dtype=torch.float32, device=q.device)
    stat = torch.empty((parts, 2), dtype=torch.float32, device=q.device)
    _decode_split[(num_kv_heads, splits, num_seqs)](
        q,
        k_cache,
        v_cache,
        page_table,
        context_lens,
        y,
        part,
        stat,
        scale * LOG2E,
        q.stride(0),
        q.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        v_cache.stride(0),
        v_cache.stride(1),
        v_cache.stride(2),
        page_table.stride(0),
        num_heads,
        head_dim,
        page_size,
        group,
        SPLITS=splits,
        BLOCK_H=max(16, triton.next_power_of_2(group)),
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        WIDEN=q.device.type == "cpu",
        num_warps=4,
        num_stages=5 if q.element_size() == 2 else 3,
    )
    if splits > 1:
        _decode_merge[(num_heads, num_seqs)](
            part,
            stat,
            context_lens,
            y,
            num_heads,
            head_dim,
            SPLITS=splits,
            BLOCK_S=triton.next_power_of_2(splits),
            BLOCK_N=block_n,
            BLOCK_D=block_d,
            num_warps=2,
        )
    return y
