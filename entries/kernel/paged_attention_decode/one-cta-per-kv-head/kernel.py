"""Paged decode attention for short contexts: one CTA walks the whole context of one KV head of one sequence."""

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
def _decode_whole(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lens_ptr,
    y_ptr,
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
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):
    kv_head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    length = tl.load(lens_ptr + seq)
    rows = tl.arange(0, BLOCK_H)
    cols = tl.arange(0, BLOCK_D)
    offsets = tl.arange(0, BLOCK_N)
    head = kv_head * group + rows
    inside = (rows < group)[:, None] & (cols < head_dim)[None, :]
    q = tl.load(q_ptr + seq * stride_qs + head[:, None] * stride_qh + cols[None, :], mask=inside, other=0.0)
    k_base = k_ptr + kv_head * stride_kh + cols[None, :]
    v_base = v_ptr + kv_head * stride_vh + cols[None, :]
    # A finite start instead of -inf keeps exp2(peak - new_peak) defined in the first block and for padding rows.
    peak = tl.full([BLOCK_H], -1e38, tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for first in tl.range(0, length, BLOCK_N):
        live = first + offsets < length
        index = (first + offsets) // page_size
        page = tl.load(table_ptr + seq * stride_table + index, mask=live, other=0).to(tl.int64)
        slot = first + offsets - index * page_size
        keep = live[:, None] & (cols < head_dim)[None, :]
        k = tl.load(k_base + (page * stride_kp + slot * stride_kt)[:, None], mask=keep, other=0.0)
        v = tl.load(v_base + (page * stride_vp + slot * stride_vt)[:, None], mask=keep, other=0.0)
        logits = _dot(q, tl.trans(k), WIDEN) * scale_log2
        logits = tl.where(live[None, :], logits, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        weights = tl.exp2(logits - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + _dot(weights, v, WIDEN)
        peak = new_peak
    y = acc / tl.where(total > 0, total, 1.0)[:, None]
    out = y_ptr + ((seq * num_heads + head) * head_dim)[:, None] + cols[None, :]
    tl.store(out, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attend with one query a sequence; no scratch memory, one launch.

    Args:
        q: [num_seqs, num_heads, head_dim], last axis contiguous.
        k_cache: [num_pages, page_size, num_kv_heads, head_dim], last axis contiguous; never copied.
        v_cache: As k_cache.
        page_table: [num_seqs, max_pages] int32.
        context_lens: [num_seqs] int32, on the device; the host never reads it.
        scale: Factor on the logits.

    Returns:
        [num_seqs, num_heads, head_dim] like q.
    """
    num_seqs, num_heads, head_dim = q.shape
    num_kv_heads = k_cache.shape[2]
    y = torch.empty((num_seqs, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    group = num_heads // num_kv_heads
    block_d = max(16, triton.next_power_of_2(head_dim))
    # 32 KiB of K and V a stage whatever the head dimension, so that the depth in bytes does not shrink with it.
    block_n = max(16, min(128, 16384 // (block_d * q.element_size())))
    _decode_whole[(num_kv_heads, num_seqs)](
        q,
        k_cache,
        v_cache,
        page_table,
        context_lens,
        y,
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
        k_cache.shape[1],
        group,
        BLOCK_H=max(16, triton.next_power_of_2(group)),
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        WIDEN=q.device.type == "cpu",
        num_warps=4,
        num_stages=5,
    )
    return y
