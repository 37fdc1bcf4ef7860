"""Attention inside windows: keys are rotated once by a launch before, then K and V stream as they are."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

L2_BYTES = 32 * 2**20
"""K and V below this stay in a large L2 in any order of tiles, so the short tiles may all come last."""


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, input_precision="ieee")


@triton.jit
def _turn(x_ptr, at, cos_ptr, sin_ptr, token, known, half, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr):
    """Return the rows at `at`, turned by their tokens' angles: float32 [BLOCK_R, 2 * BLOCK_H], pairs interleaved."""
    cols = tl.arange(0, 2 * BLOCK_H)
    pairs = tl.arange(0, BLOCK_H)
    x = tl.load(x_ptr + at[:, None] + cols[None, :], mask=known[:, None] & (cols < 2 * half)[None, :], other=0.0)
    even, odd = tl.split(tl.reshape(x.to(tl.float32), [BLOCK_R, BLOCK_H, 2]))
    table = token[:, None] * half + pairs[None, :]
    listed = known[:, None] & (pairs < half)[None, :]
    cos = tl.load(cos_ptr + table, mask=listed, other=0.0)
    sin = tl.load(sin_ptr + table, mask=listed, other=0.0)
    return tl.reshape(tl.join(even * cos - odd * sin, even * sin + odd * cos), [BLOCK_R, 2 * BLOCK_H])


@triton.jit
def _turn_keys(
    k_ptr, cos_ptr, sin_ptr, out_ptr, stride_kw, stride_kt, stride_kh, num_heads, tokens, half, BLOCK_R: tl.constexpr,
    BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Write the turned keys as [window, head, token, d]."""
    window = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    token = row // num_heads
    head = row % num_heads
    known = token < tokens
    at = window * stride_kw + token.to(tl.int64) * stride_kt + head.to(tl.int64) * stride_kh
    turned = _turn(k_ptr, at, cos_ptr, sin_ptr, token, known, half, BLOCK_R, BLOCK_H)
    cols = tl.arange(0, 2 * BLOCK_H)
    out = ((window * num_heads + head) * tokens + token) * (2 * half)
    inside = known[:, None] & (cols < 2 * half)[None, :]
    tl.store(out_ptr + out[:, None] + cols[None, :], turned.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, y_ptr, first_row, scale_log2, stride_qt, stride_vt, stride_yt, tokens, half,
    EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Attend for BLOCK_M queries of one window and head; the pointers stand at that window and head."""
    row = first_row + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, 2 * BLOCK_H)
    keys = tl.arange(0, BLOCK_N)
    # The scale goes into q before its one rounding: it costs no accuracy and saves a multiply a score.
    q = _turn(q_ptr, row * stride_qt, cos_ptr, sin_ptr, row, row < tokens, half, BLOCK_M, BLOCK_H) * scale_log2
    q = q.to(k_ptr.dtype.element_ty) if not WIDEN else q
    k_tile = keys[:, None] * (2 * half) + cols[None, :]
    v_tile = keys[:, None] * stride_vt + cols[None, :]
    peak = tl.full([BLOCK_M], -1e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, 2 * BLOCK_H], tl.float32)
    for first in tl.range(0, tokens, BLOCK_N):
        if EVEN:
            k = tl.load(k_ptr + k_tile)
            v = tl.load(v_ptr + v_tile)
        else:
            there = (first + keys < tokens)[:, None] & (cols < 2 * half)[None, :]
            k = tl.load(k_ptr + k_tile, mask=there, other=0.0)
            v = tl.load(v_ptr + v_tile, mask=there, other=0.0)
        logits = _dot(q, tl.trans(k), WIDEN)
        if not EVEN:
            logits = tl.where((first + keys < tokens)[None, :], logits, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        weights = tl.exp2(logits - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + _dot(weights, v, WIDEN)
        peak = new_peak
        k_ptr += BLOCK_N * 2 * half
        v_ptr += BLOCK_N * stride_vt
    y = acc / total[:, None]
    inside = (row < tokens)[:, None] & (cols < 2 * half)[None, :]
    tl.store(y_ptr + (row * stride_yt)[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _window_tiles(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, y_ptr, scale_log2, stride_qw, stride_qt, stride_qh, stride_vw, stride_vt,
    stride_vh, num_heads, tokens, half, tiles, full, SHORT_LAST: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    if SHORT_LAST:
        pairs = tl.num_programs(0) // tiles
        tile = tl.program_id(0) // pairs
        pair = tl.program_id(0) % pairs
    else:
        tile = tl.program_id(0) % tiles
        pair = tl.program_id(0) // tiles
    window = (pair // num_heads).to(tl.int64)
    head = (pair % num_heads).to(tl.int64)
    q_ptr += window * stride_qw + head * stride_qh
    k_ptr += pair.to(tl.int64) * tokens * (2 * half)
    v_ptr += window * stride_vw + head * stride_vh
    y_ptr += (window * tokens * num_heads + head) * (2 * half)
    stride_yt = num_heads * 2 * half
    if tile < full:
        _attend(
            q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, y_ptr, tile * BLOCK_M, scale_log2, stride_qt, stride_vt, stride_yt,
            tokens, half, EVEN, BLOCK_M, BLOCK_N, BLOCK_H, WIDEN,
        )  # fmt: skip
    else:  # at most half a tile of queries is left: half the work, and not a full tile of padding
        _attend(
            q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, y_ptr, full * BLOCK_M, scale_log2, stride_qt, stride_vt, stride_yt,
            tokens, half, EVEN, BLOCK_M // 2, BLOCK_N, BLOCK_H, WIDEN,
        )  # fmt: skip


def _tiles(block_h: int, itemsize: int) -> tuple[int, int, int]:
    """Return BLOCK_M, BLOCK_N, warps: in 16 bits one warpgroup up to d = 64, so that two CTAs share an SM."""
    if itemsize == 4:
        return 64, 32, 4
    return 128, 64, 4 if block_h <= 32 else 8


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
        [num_windows, window_tokens, num_heads, head_dim] like q, contiguous. Scratch: as large as k.
    """
    num_windows, tokens, num_heads, head_dim = q.shape
    y = torch.empty((num_windows, tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if y.numel() == 0:
        return y
    cos, sin = cos.contiguous(), sin.contiguous()
    turned = torch.empty((num_windows, num_heads, tokens, head_dim), dtype=k.dtype, device=k.device)
    half = head_dim // 2
    block_h = max(16, triton.next_power_of_2(half))
    block_r = max(1, 2048 // block_h)
    _turn_keys[(triton.cdiv(tokens * num_heads, block_r), num_windows)](
        k, cos, sin, turned, k.stride(0), k.stride(1), k.stride(2), num_heads, tokens, half, BLOCK_R=block_r,
        BLOCK_H=block_h, num_warps=4,
    )  # fmt: skip
    block_m, block_n, warps = _tiles(block_h, q.element_size())
    full = max(0, triton.cdiv(tokens - block_m // 2, block_m))
    tiles = full + (tokens > full * block_m)
    _window_tiles[(tiles * num_windows * num_heads,)](
        q, turned, v, cos, sin, y, scale * LOG2E, q.stride(0), q.stride(1), q.stride(2),
        v.stride(0), v.stride(1), v.stride(2), num_heads, tokens, half, tiles, full,
        SHORT_LAST=2 * turned.numel() * turned.element_size() <= L2_BYTES,
        EVEN=tokens % block_n == 0 and half == block_h, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_H=block_h,
        WIDEN=q.device.type == "cpu", num_warps=warps, num_stages=3,
    )  # fmt: skip
    return y
