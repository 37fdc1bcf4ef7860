"""Top-k and top-p without a sort: block maxima bound the threshold, bisection of float bits finds it."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Tokens a block; a row has at most 1,024 blocks."""
CAP = 4096
"""Candidates that are kept in one tile; a row with more is bisected in place."""


@triton.jit
def _keys(x):
    """Map float32 to integers in the same order, -0.0 equal to 0.0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _floats(key):
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _block_peaks(logits_ptr, peaks_ptr, stride_row, vocab_size, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * stride_row + index, mask=index < vocab_size, other=float("-inf")).to(tl.float32)
    tl.store(peaks_ptr + row * tl.num_programs(0) + tl.program_id(0), tl.max(x, 0))


@triton.jit
def _tally(ptr, count, above, peak, TILE: tl.constexpr):
    """Count the elements with key >= ``above`` and add up their exp(x - peak)."""
    number = tl.zeros([TILE], tl.int32)
    mass = tl.zeros([TILE], tl.float32)
    for start in tl.range(0, count, TILE):
        index = start + tl.arange(0, TILE)
        x = tl.load(ptr + index, mask=index < count, other=float("-inf")).to(tl.float32)
        kept = (index < count) & (_keys(x).to(tl.int64) >= above)
        number += kept.to(tl.int32)
        mass += tl.where(kept, tl.exp(x - peak), 0.0)
    return tl.sum(number, 0), tl.sum(mass, 0)


@triton.jit
def _threshold(
    logits_ptr,
    peaks_ptr,
    top_k_ptr,
    top_p_ptr,
    spare_ptr,
    bound_ptr,
    stats_ptr,
    stride_row,
    vocab_size,
    blocks,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    CAP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    limited = (top_k > 0) & (top_k < vocab_size)
    logits_ptr += row * stride_row
    place = tl.arange(0, BLOCKS)
    peaks = tl.load(peaks_ptr + row * blocks + place, mask=place < blocks, other=float("-inf"))
    peak = tl.max(peaks, 0)
    high = _keys(peak).to(tl.int64)
    bottom = tl.min(_keys(tl.full([1], float("-inf"), tl.float32)).to(tl.int64), 0)
    # The k-th largest block maximum is at most the k-th largest token: k tokens are at least as large.
    peak_keys = tl.where(place < blocks, _keys(peaks).to(tl.int64), bottom - 1)
    low = bottom
    if limited & (top_k <= blocks):
        top = high
        for _ in tl.range(0, 33):
            if low < top:
                middle = (low + top + 1) >> 1
                enough = tl.sum((peak_keys >= middle).to(tl.int32), 0) >= top_k
                low = tl.where(enough, middle, low)
                top = tl.where(enough, top, middle - 1)
    # Candidates: everything at or above that bound, taken from the blocks that reach it.
    spare_ptr += row * CAP
    found = tl.zeros([], tl.int32)
    if low > bottom:
        for block in tl.range(0, blocks):
            if tl.load(peaks_ptr + row * blocks + block) >= _floats(low.to(tl.int32)):
                index = block * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(logits_ptr + index, mask=index < vocab_size, other=float("-inf"))
                taken = (index < vocab_size) & (_keys(x.to(tl.float32)).to(tl.int64) >= low)
                slot = found + tl.cumsum(taken.to(tl.int32), 0) - 1
                tl.store(spare_ptr + slot, x, mask=taken & (slot < CAP))
                found += tl.sum(taken.to(tl.int32), 0)
        tl.debug_barrier()
    source = logits_ptr
    count = vocab_size
    if (found > 0) & (found <= CAP):
        source = spare_ptr
        count = found
    # top-k: the largest key that at least k tokens reach.
    if limited:
        top = high
        for _ in tl.range(0, 33):
            if low < top:
                middle = (low + top + 1) >> 1
                number, mass = _tally(source, count, middle, peak, CAP)
                low = tl.where(number >= top_k, middle, low)
                top = tl.where(number >= top_k, top, middle - 1)
    number, total = _tally(source, count, low, peak, CAP)
    # top-p: the smallest key above which less than top_p of that mass lies.
    if top_p < 1.0:
        top = high
        for _ in tl.range(0, 33):
            if low < top:
                middle = (low + top) >> 1
                number, mass = _tally(source, count, middle + 1, peak, CAP)
                fits = mass < top_p * total
                low = tl.where(fits, low, middle + 1)
                top = tl.where(fits, middle, top)
        number, total = _tally(source, count, low, peak, CAP)
    tl.store(bound_ptr + row, low)
    tl.store(stats_ptr + row * 2, peak)
    tl.store(stats_ptr + row * 2 + 1, total)


@triton.jit
def _write_probs(logits_ptr, bound_ptr, stats_ptr, probs_ptr, stride_row, vocab_size, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * stride_row + index, mask=index < vocab_size, other=0.0).to(tl.float32)
    peak = tl.load(stats_ptr + row * 2)
    total = tl.load(stats_ptr + row * 2 + 1)
    kept = _keys(x).to(tl.int64) >= tl.load(bound_ptr + row)
    probs = tl.where(kept, tl.exp(x - peak) / total, 0.0)
    tl.store(probs_ptr + row * vocab_size + index, probs, mask=index < vocab_size)


def run(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the likeliest tokens and renormalise; equal logits stay or go together.

    Args:
        logits: [num_rows, vocab_size], last axis contiguous; vocab_size at most 2^20.
        top_k: int32 [num_rows]; 0 or at least vocab_size: off. Read on the device only.
        top_p: float32 [num_rows]; 1 or more: off.

    Returns:
        float32 [num_rows, vocab_size]. Scratch a row: 4,096 logits and 4 bytes per 1,024 tokens.
    """
    num_rows, vocab_size = logits.shape
    device = logits.device
    probs = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=device)
    if probs.numel() == 0:
        return probs
    blocks = triton.cdiv(vocab_size, BLOCK)
    peaks = torch.empty((num_rows, blocks), dtype=torch.float32, device=device)
    spare = torch.empty((num_rows, CAP), dtype=logits.dtype, device=device)
    bound = torch.empty((num_rows,), dtype=torch.int64, device=device)
    stats = torch.empty((num_rows, 2), dtype=torch.float32, device=device)
    stride = logits.stride(0)
    _block_peaks[(blocks, num_rows)](logits, peaks, stride, vocab_size, BLOCK=BLOCK, num_warps=4)
    _threshold[(num_rows,)](
        logits,
        peaks,
        top_k.contiguous(),
        top_p.contiguous(),
        spare,
        bound,
        stats,
        stride,
        vocab_size,
        blocks,
        BLOCKS=triton.next_power_of_2(blocks),
        BLOCK=BLOCK,
        CAP=CAP,
        num_warps=16,
    )
    grid = (triton.cdiv(vocab_size, 4 * BLOCK), num_rows)
    _write_probs[grid](logits, bound, stats, probs, stride, vocab_size, BLOCK=4 * BLOCK, num_warps=8)
    return probs
