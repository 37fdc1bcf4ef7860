"""Attention inside windows; q and k are rotated on the way in, as two half-width products that need no interleaving."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def _dot(a, b, acc, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, acc, input_precision="ieee")


@triton.jit
def _rotated(x_ptr, stride_t, cos_ptr, sin_ptr, rows, tokens, half, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr):
    """Return the even and the odd elements of the rotated rows, float32 [BLOCK_R, BLOCK_H] each."""
    cols = tl.arange(0, 2 * BLOCK_H)
    keep = (rows < tokens)[:, None] & (cols < 2 * half)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_t + cols[None, :], mask=keep, other=0.0).to(tl.float32)
    even, odd = tl.split(tl.reshape(x, [BLOCK_R, BLOCK_H, 2]))
    pairs = tl.arange(0, BLOCK_H)
    table = rows[:, None] * half + pairs[None, :]
    known = (rows < tokens)[:, None] & (pairs < half)[None, :]
    cos = tl.load(cos_ptr + table, mask=known, other=0.0)
    sin = tl.load(sin_ptr + table, mask=known, other=0.0)
    return even * cos - odd * sin, even * sin + odd * cos


@triton.jit
def _window_rope(
    q_ptr,
    k_ptr,
    v_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    scale_log2,
    stride_qw,
    stride_qt,
    stride_qh,
    stride_kw,
    stride_kt,
    stride_kh,
    stride_vw,
    stride_vt,
    stride_vh,
    num_heads,
    tokens,
    half,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    WIDEN: tl.constexpr,
):
    window = (tl.program_id(1) // num_heads).to(tl.int64)
    head = tl.program_id(1) % num_heads
    kind = q_ptr.dtype.element_ty
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    q_base = q_ptr + window * stride_qw + head * stride_qh
    even, odd = _rotated(q_base, stride_qt, cos_ptr, sin_ptr, rows, tokens, half, BLOCK_M, BLOCK_H)
    # The scale goes into q before its one rounding: it costs no accuracy and saves a multiply a score.
    q_even = even * scale_log2
    q_odd = odd * scale_log2
    if not WIDEN:
        q_even = q_even.to(kind)
        q_odd = q_odd.to(kind)
    k_base = k_ptr + window * stride_kw + head * stride_kh
    cols = tl.arange(0, 2 * BLOCK_H)
    v_base = v_ptr + window * stride_vw + head * stride_vh + cols[None, :]
    peak = tl.full([BLOCK_M], -1e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, 2 * BLOCK_H], tl.float32)
    for first in tl.range(0, tokens, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        k_even, k_odd = _rotated(k_base, stride_kt, cos_ptr, sin_ptr, keys, tokens, half, BLOCK_N, BLOCK_H)
        if not WIDEN:
            k_even = k_even.to(kind)
            k_odd = k_odd.to(kind)
        keep = (keys < tokens)[:, None] & (cols < 2 * half)[None, :]
        v = tl.load(v_base + keys[:, None] * stride_vt, mask=keep, other=0.0)
        logits = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        logits = _dot(q_even, tl.trans(k_even), logits, WIDEN)
        logits = _dot(q_odd, tl.trans(k_odd), logits, WIDEN)
        logits = tl.where((keys < tokens)[None, :], logits, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        weights = tl.exp2(logits - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = _dot(weights, v, acc * shrink[:, None], WIDEN)
        peak = new_peak
    y = acc / total[:, None]
    y_rows = ((window * tokens + rows) * num_heads + head) * (2 * half)
    inside = (rows < tokens)[:, None] & (cols < 2 * half)[None, :]
    tl.store(y_ptr + y_rows[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, scale: float
) -> torch.Tensor:
    """Rotate q and k and attend inside each window.

    Args:
        q: [num_windows, window_tokens, num_heads, head_dim], last axis contiguous, other strides free.
        k: As q.
        v: As q.
        cos: float32 [window_tokens, head_dim / 2], contiguous.
        sin: As cos.
        scale: Factor on the logits.

    Returns:
        [num_windows, window_tokens, num_heads, head_dim] like q, contiguous. No scratch memory.
    """
    num_windows, tokens, num_heads, head_dim = q.shape
    y = torch.empty((num_windows, tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    wide = q.element_size() == 2
    block_m = 128 if wide and tokens > 64 else 64
    _window_rope[(triton.cdiv(tokens, block_m), num_windows * num_heads)](
        q,
        k,
        v,
        cos.contiguous(),
        sin.contiguous(),
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
        tokens,
        head_dim // 2,
        BLOCK_M=block_m,
        BLOCK_N=64 if wide else 32,
        BLOCK_H=max(16, triton.next_power_of_2(head_dim // 2)),
        WIDEN=q.device.type == "cpu",
        num_warps=8 if block_m == 128 else 4,
        num_stages=2,
        maxnreg=128 if block_m == 128 else None,  # 130 would halve the CTAs an SM holds
    )
    return y
