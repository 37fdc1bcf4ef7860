"""Dense attention whose rows are (query, head of a group) pairs and whose keys are split when rows alone are too few."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

SCRATCH_KEYS = 400
"""Keys in whose time a CTA writes its partial result and reads one back: 128 rows * d * 8 bytes at 23 B/ns an SM."""


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(b.dtype), b, input_precision="ieee")


@triton.jit
def _walk(
    acc, peak, total, q, k_ptr, v_ptr, start, stop, last, scale_log2, stride_kt, stride_vt, head_dim,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, EVEN_D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    keys = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_D)
    # The key axis is 64 bits wide once here, the tile's own offsets fit 32.
    k_ptr += start.to(tl.int64) * stride_kt
    v_ptr += start.to(tl.int64) * stride_vt
    k_tile = keys[:, None] * stride_kt + cols[None, :]
    v_tile = keys[:, None] * stride_vt + cols[None, :]
    for first in tl.range(start, stop, BLOCK_N):
        if MASKED:
            there = (first + keys < stop)[:, None] & (cols < head_dim)[None, :]
            k = tl.load(k_ptr + k_tile, mask=there, other=0.0)
            v = tl.load(v_ptr + v_tile, mask=there, other=0.0)
        elif EVEN_D:
            k = tl.load(k_ptr + k_tile)
            v = tl.load(v_ptr + v_tile)
        else:
            k = tl.load(k_ptr + k_tile, mask=(cols < head_dim)[None, :], other=0.0)
            v = tl.load(v_ptr + v_tile, mask=(cols < head_dim)[None, :], other=0.0)
        logits = _dot(q, tl.trans(k), WIDEN)
        if MASKED:
            seen = (first + keys < stop)[None, :]
            if CAUSAL:
                seen = seen & (first + keys[None, :] <= last[:, None])
            logits = tl.where(seen, logits, float("-inf"))
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
def _packed_rows(
    q_ptr, k_ptr, v_ptr, y_ptr, part_ptr, stat_ptr, scale_log2, stride_qb, stride_qt, stride_qh, stride_kb, stride_kt,
    stride_kh, stride_vb, stride_vt, stride_vh, kv_heads, tiles, q_len, kv_len, lines, head_dim,
    GROUP: tl.constexpr, SPLITS: tl.constexpr, CAUSAL: tl.constexpr, EVEN_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    # Causal: the longest tiles of all heads start first. Otherwise: the tiles of a head together, for its K/V in L2.
    pid = tl.program_id(0)
    if CAUSAL:
        others = tl.num_programs(0) // tiles
        tile = tiles - 1 - pid // others
        other = pid % others
    else:
        tile = pid % tiles
        other = pid // tiles
    split = other % SPLITS
    kv_head = (other // SPLITS) % kv_heads
    batch = (other // SPLITS // kv_heads).to(tl.int64)
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    query = row // GROUP
    head = kv_head * GROUP + row % GROUP
    in_rows = query < q_len
    cols = tl.arange(0, BLOCK_D)
    inside = in_rows[:, None] & (cols < head_dim)[None, :]
    q_rows = batch * stride_qb + query.to(tl.int64) * stride_qt + head.to(tl.int64) * stride_qh
    q = tl.load(q_ptr + q_rows[:, None] + cols[None, :], mask=inside, other=0.0)
    k_ptr += batch * stride_kb + kv_head.to(tl.int64) * stride_kh
    v_ptr += batch * stride_vb + kv_head.to(tl.int64) * stride_vh
    offset = kv_len - q_len
    last = query + offset
    stop = kv_len
    clear = kv_len
    if CAUSAL:
        stop = tl.maximum(0, tl.minimum(kv_len, (tile * BLOCK_M + BLOCK_M - 1) // GROUP + offset + 1))
        clear = tl.maximum(0, tl.minimum(kv_len, (tile * BLOCK_M) // GROUP + offset + 1))
    # Every split gets the same number of whole tiles of the keys that this tile of rows sees, not of all keys.
    share = tl.cdiv(tl.cdiv(stop, BLOCK_N), SPLITS) * BLOCK_N
    start = split * share
    stop = tl.minimum(stop, start + share)
    clear = tl.maximum(start, tl.minimum(clear // BLOCK_N * BLOCK_N, start + share))
    # A finite start keeps exp2(peak - new_peak) defined for rows that see nothing.
    peak = tl.full([BLOCK_M], -1e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    acc, peak, total = _walk(
        acc, peak, total, q, k_ptr, v_ptr, start, clear, last, scale_log2, stride_kt, stride_vt, head_dim,
        False, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, WIDEN,
    )  # fmt: skip
    acc, peak, total = _walk(
        acc, peak, total, q, k_ptr, v_ptr, clear, stop, last, scale_log2, stride_kt, stride_vt, head_dim,
        True, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, WIDEN,
    )  # fmt: skip
    line = (batch * q_len + query) * (kv_heads * GROUP) + head
    if SPLITS == 1:
        y = acc / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(y_ptr + line[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        line += split.to(tl.int64) * lines
        tl.store(part_ptr + line[:, None] * head_dim + cols[None, :], acc, mask=inside)
        tl.store(stat_ptr + line * 2, peak, mask=in_rows)
        tl.store(stat_ptr + line * 2 + 1, total, mask=in_rows)


@triton.jit
def _join_splits(
    part_ptr, stat_ptr, y_ptr, lines, head_dim, SPLITS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    cols = tl.arange(0, BLOCK_D)
    in_rows = line < lines
    inside = in_rows[:, None] & (cols < head_dim)[None, :]
    peak = tl.full([BLOCK_R], -1e38, tl.float32)
    at = line
    for _ in tl.static_range(SPLITS):
        peak = tl.maximum(peak, tl.load(stat_ptr + at * 2, mask=in_rows, other=-1e38))
        at += lines
    total = tl.zeros([BLOCK_R], tl.float32)
    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    at = line
    for _ in tl.static_range(SPLITS):
        weight = tl.exp2(tl.load(stat_ptr + at * 2, mask=in_rows, other=-1e38) - peak)
        total += weight * tl.load(stat_ptr + at * 2 + 1, mask=in_rows, other=0.0)
        part = tl.load(part_ptr + at[:, None] * head_dim + cols[None, :], mask=inside, other=0.0)
        acc += weight[:, None] * part
        at += lines
    y = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(y_ptr + line[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def _tiles(block_d: int, itemsize: int) -> tuple[int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, warps, stages: at d <= 64 one warpgroup a CTA, so that two or three CTAs share an SM."""
    if itemsize == 4:
        return (64, 32, 8, 2) if block_d <= 128 else (32, 32, 8, 1)
    if block_d <= 64:
        return 128, 64, 4, 3
    return (128, 128, 8, 2) if block_d == 128 else (128, 64, 8, 2)


def _splits(tiles: int, kv_len: int, block_n: int, *, sms: int, scratch: int) -> int:
    """Return the number of key splits with the shortest time: waves of CTAs times keys of one, in keys."""

    def time(splits: int) -> float:
        waves = triton.cdiv(tiles * splits, sms)
        return waves * (kv_len / splits + block_n + (scratch if splits > 1 else 0))

    return min(range(1, max(1, min(8, kv_len // block_n)) + 1), key=time)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: int = 1) -> torch.Tensor:
    """Attend.

    Args:
        q: [batch_size, q_len, num_heads, head_dim], last axis contiguous, other strides free.
        k: [batch_size, kv_len, num_kv_heads, head_dim], likewise.
        v: As k.
        scale: Factor on the logits.
        causal: 1: query i sees keys 0 … i + kv_len - q_len.

    Returns:
        [batch_size, q_len, num_heads, head_dim] like q. Scratch where keys are split: splits * (head_dim + 2) * 4
        bytes a row and head.
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
    group = num_heads // num_kv_heads
    tiles = triton.cdiv(q_len * group, block_m)
    # Without a device there are SMs and scratch for nothing, so that small inputs take the way of large ones.
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 132
    whole = tiles * batch_size * num_kv_heads
    splits = _splits(whole, kv_len, block_n, sms=sms, scratch=SCRATCH_KEYS if q.is_cuda else 0)
    lines = batch_size * q_len * num_heads
    part = torch.empty((lines * splits, head_dim) if splits > 1 else (1,), dtype=torch.float32, device=q.device)
    stat = torch.empty((lines * splits, 2) if splits > 1 else (1,), dtype=torch.float32, device=q.device)
    _packed_rows[(whole * splits,)](
        q, k, v, y, part, stat, scale * LOG2E,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), num_kv_heads, tiles, q_len, kv_len, lines, head_dim,
        GROUP=group, SPLITS=splits, CAUSAL=bool(causal), EVEN_D=block_d == head_dim, BLOCK_M=block_m,
        BLOCK_N=block_n, BLOCK_D=block_d, WIDEN=q.device.type == "cpu", num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        block_r = max(1, min(64, 4096 // block_d))
        _join_splits[(triton.cdiv(lines, block_r),)](
            part, stat, y, lines, head_dim, SPLITS=splits, BLOCK_R=block_r, BLOCK_D=block_d, num_warps=4
        )
    return y
