"""Top-k and top-p in one pass over the logits: zeros are streamed out, the few candidates are ranked by all pairs."""

import torch
import triton
import triton.language as tl

PEAKS = 256
"""A row has at most so many blocks: all pairs of their maxima are compared."""
CAP = 512
"""Candidates that are ranked by all pairs; a row with more is bisected and written by a pass of its own."""
TILE = 4096
"""Tokens a CTA of the streaming kernels."""


@triton.jit
def _stream(
    logits_ptr, probs_ptr, peaks_ptr, sums_ptr, top_k_ptr, stride_row, vocab_size, blocks,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    index = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = index < vocab_size
    x = tl.load(logits_ptr + row * stride_row + index, mask=inside, other=float("-inf"))
    tl.store(probs_ptr + row * vocab_size + index, tl.zeros([BLOCKS, BLOCK], tl.float32), mask=inside)
    x = x.to(tl.float32)
    peak = tl.max(x, 1)
    tl.store(peaks_ptr + row * blocks + block, peak, mask=block < blocks)
    top_k = tl.load(top_k_ptr + row)
    if (top_k <= 0) | (top_k >= vocab_size):
        # Only a row without top-k needs the sum of all exponentials.
        around = tl.where(peak == float("-inf"), 0.0, peak)
        tl.store(sums_ptr + row * blocks + block, tl.sum(tl.exp(x - around[:, None]), 1), mask=block < blocks)


@triton.jit
def _keys(x, SHIFT: tl.constexpr):
    """Map float32 to integers in the same order, -0.0 equal to 0.0; 16-bit formats leave SHIFT bits unused."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64) >> SHIFT


@triton.jit
def _tally(logits_ptr, vocab_size, above, peak, SHIFT: tl.constexpr, TILE: tl.constexpr):
    """Count the tokens with key >= ``above`` and add up their exp(x - peak)."""
    number = tl.zeros([TILE], tl.int32)
    mass = tl.zeros([TILE], tl.float32)
    for start in tl.range(0, vocab_size, TILE):
        index = start + tl.arange(0, TILE)
        x = tl.load(logits_ptr + index, mask=index < vocab_size, other=float("-inf")).to(tl.float32)
        kept = (index < vocab_size) & (_keys(x, SHIFT) >= above)
        number += kept.to(tl.int32)
        mass += tl.where(kept, tl.exp(x - peak), 0.0)
    return tl.sum(number, 0), tl.sum(mass, 0)


@triton.jit
def _bisect(logits_ptr, vocab_size, peak, top_k, top_p, limited, SHIFT: tl.constexpr, TILE: tl.constexpr):
    """Return the smallest kept key and the kept mass, by passes over the row."""
    high = tl.max(_keys(tl.full([1], 0.0, tl.float32) + peak, SHIFT), 0)
    low = tl.min(_keys(tl.full([1], float("-inf"), tl.float32), SHIFT), 0)
    if limited:
        top = high
        while low < top:
            middle = (low + top + 1) >> 1
            number, mass = _tally(logits_ptr, vocab_size, middle, peak, SHIFT, TILE)
            low = tl.where(number >= top_k, middle, low)
            top = tl.where(number >= top_k, top, middle - 1)
    number, total = _tally(logits_ptr, vocab_size, low, peak, SHIFT, TILE)
    if top_p < 1.0:
        top = high
        while low < top:
            middle = (low + top) >> 1
            number, mass = _tally(logits_ptr, vocab_size, middle + 1, peak, SHIFT, TILE)
            low = tl.where(mass < top_p * total, low, middle + 1)
            top = tl.where(mass < top_p * total, middle, top)
        number, total = _tally(logits_ptr, vocab_size, low, peak, SHIFT, TILE)
    return low, total


@triton.jit
def _bound(peaks_ptr, peaks, peak, limited, goal, blocks, PEAKS: tl.constexpr, STEP: tl.constexpr):
    """Return the largest block maximum at or above which the maxima alone reach the goal; -inf if they never do."""
    reached = tl.zeros([PEAKS], tl.float32)
    for start in tl.range(0, blocks, STEP):
        place = start + tl.arange(0, STEP)
        other = tl.load(peaks_ptr + place, mask=place < blocks, other=float("-inf"))
        amount = tl.where(limited, (place < blocks).to(tl.float32), tl.exp(other - peak))
        # Lanes lie along the last axis, so that the sum over the first needs no shuffle.
        reached += tl.sum(tl.where(other[:, None] >= peaks[None, :], amount[:, None], 0.0), 0)
    return tl.max(tl.where(reached >= goal, peaks, float("-inf")), 0)


@triton.jit
def _collect(
    logits_ptr, list_ptr, value_ptr, token_ptr, chosen, vocab_size, bound,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """Write the finite logits of the chosen blocks that reach the bound, in a fixed order; return how many there are."""
    found = tl.zeros([], tl.int32)
    for start in tl.range(0, chosen, BLOCKS):
        place = start + tl.arange(0, BLOCKS)
        block = tl.load(list_ptr + place, mask=place < chosen, other=0)
        index = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        inside = (place < chosen)[:, None] & (index < vocab_size)
        x = tl.load(logits_ptr + index, mask=inside, other=float("-inf")).to(tl.float32)
        taken = (x >= bound) & (x > float("-inf"))
        number = taken.to(tl.int32)
        many = tl.sum(number, 1)
        slot = found + (tl.cumsum(many, 0) - many)[:, None] + tl.cumsum(number, 1) - 1
        tl.store(value_ptr + slot, x, mask=taken & (slot < CAP))
        tl.store(token_ptr + slot, index, mask=taken & (slot < CAP))
        found += tl.sum(many, 0)
    return found


@triton.jit
def _rank(
    value_ptr, token_ptr, probs_ptr, found, peak, top_k, top_p, limited, whole, CAP: tl.constexpr, STEP: tl.constexpr
):
    """Keep by the definition: fewer than top_k larger ones, and less than top_p of the mass in larger ones."""
    place = tl.arange(0, CAP)
    x = tl.load(value_ptr + place, mask=place < found, other=float("-inf"))
    larger = tl.zeros([CAP], tl.int32)
    mass = tl.zeros([CAP], tl.float32)
    for start in tl.range(0, found, STEP):
        next_place = start + tl.arange(0, STEP)
        other = tl.load(value_ptr + next_place, mask=next_place < found, other=float("-inf"))
        above = other[:, None] > x[None, :]
        larger += tl.sum(above.to(tl.int32), 0)
        mass += tl.sum(tl.where(above, tl.exp(other - peak)[:, None], 0.0), 0)
    share = tl.exp(x - peak)
    kept = (place < found) & (larger < tl.where(limited, top_k, CAP))
    all_mass = tl.where(limited, tl.sum(tl.where(kept, share, 0.0), 0), whole)
    kept = kept & (mass < tl.where(top_p < 1.0, top_p * all_mass, float("inf")))
    total = tl.sum(tl.where(kept, share, 0.0), 0)
    token = tl.load(token_ptr + place, mask=place < found, other=0)
    tl.store(probs_ptr + token, share / total, mask=kept)


@triton.jit
def _decide(
    logits_ptr, probs_ptr, peaks_ptr, sums_ptr, top_k_ptr, top_p_ptr, list_ptr, value_ptr, token_ptr,
    dense_ptr, bound_ptr, stats_ptr, stride_row, vocab_size, blocks,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PEAKS: tl.constexpr, CAP: tl.constexpr, TILE: tl.constexpr,
    STEP: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    limited = (top_k > 0) & (top_k < vocab_size)
    logits_ptr += row * stride_row
    peaks_ptr += row * blocks
    place = tl.arange(0, PEAKS)
    peaks = tl.load(peaks_ptr + place, mask=place < blocks, other=float("-inf"))
    peak = tl.max(peaks, 0)
    # 0 where top-k is on: nothing was written there.
    sums = tl.load(sums_ptr + row * blocks + place, mask=place < tl.where(limited, 0, blocks), other=0.0)
    whole = tl.sum(sums * tl.exp(peaks - peak), 0)
    # k maxima are k tokens, and their mass is mass of tokens: what they reach, the tokens reach no lower.
    goal = tl.where(limited, top_k.to(tl.float32), top_p * whole * 1.00001)
    bound = _bound(peaks_ptr, peaks, peak, limited, goal, blocks, PEAKS, STEP)
    found = tl.full([], CAP + 1, tl.int32)
    # A logit of +inf has no softmax: its row is dense, and NaN throughout as in the definition.
    chosen = (limited | (top_p < 1.0)) & (peak < float("inf"))
    if ((bound > float("-inf")) | (vocab_size <= CAP)) & chosen:
        wanted = (peaks >= bound) & (peaks > float("-inf"))
        number = wanted.to(tl.int32)
        list_ptr += row * PEAKS
        tl.store(list_ptr + tl.cumsum(number, 0) - 1, place, mask=wanted)
        tl.debug_barrier()
        value_ptr += row * CAP
        token_ptr += row * CAP
        found = _collect(
            logits_ptr, list_ptr, value_ptr, token_ptr, tl.sum(number, 0), vocab_size, bound, BLOCK, BLOCKS, CAP
        )
        tl.debug_barrier()
    if found <= CAP:
        _rank(
            value_ptr, token_ptr, probs_ptr + row * vocab_size, found, peak, top_k, top_p, limited, whole, CAP, STEP
        )
    else:
        lowest = tl.min(_keys(tl.full([1], float("-inf"), tl.float32), SHIFT), 0)
        total = tl.where(peak < float("inf"), whole, float("nan"))
        if chosen:
            lowest, total = _bisect(logits_ptr, vocab_size, peak, top_k, top_p, limited, SHIFT, TILE)
        tl.store(bound_ptr + row, lowest)
        tl.store(stats_ptr + row * 2, peak)
        tl.store(stats_ptr + row * 2 + 1, total)
    tl.store(dense_ptr + row, (found > CAP).to(tl.int32))


@triton.jit
def _write_dense(
    logits_ptr, probs_ptr, dense_ptr, bound_ptr, stats_ptr, stride_row, vocab_size, TILE: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    if tl.load(dense_ptr + row) != 0:
        index = tl.program_id(0) * TILE + tl.arange(0, TILE)
        x = tl.load(logits_ptr + row * stride_row + index, mask=index < vocab_size, other=0.0).to(tl.float32)
        kept = _keys(x, SHIFT) >= tl.load(bound_ptr + row)
        share = tl.exp(x - tl.load(stats_ptr + row * 2)) / tl.load(stats_ptr + row * 2 + 1)
        tl.store(probs_ptr + row * vocab_size + index, tl.where(kept, share, 0.0), mask=index < vocab_size)


def run(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the likeliest tokens and renormalise; equal logits stay or go together.

    Args:
        logits: [num_rows, vocab_size], last axis contiguous; vocab_size at most 2^20.
        top_k: int32 [num_rows]; 0 or at least vocab_size: off. Read on the device only.
        top_p: float32 [num_rows]; 1 or more: off.

    Returns:
        float32 [num_rows, vocab_size]. Scratch: at most 7.2 KB a row.
    """
    num_rows, vocab_size = logits.shape
    device = logits.device
    probs = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=device)
    if probs.numel() == 0:
        return probs
    top_k, top_p = top_k.contiguous(), top_p.contiguous()
    block = max(1024, triton.next_power_of_2(triton.cdiv(vocab_size, PEAKS)))
    blocks = triton.cdiv(vocab_size, block)
    peaks, sums = torch.empty((2, num_rows, blocks), dtype=torch.float32, device=device)
    listed = torch.empty((num_rows, PEAKS), dtype=torch.int32, device=device)
    values = torch.empty((num_rows, CAP), dtype=torch.float32, device=device)
    tokens = torch.empty((num_rows, CAP), dtype=torch.int32, device=device)
    dense = torch.empty((num_rows,), dtype=torch.int32, device=device)
    bound = torch.empty((num_rows,), dtype=torch.int64, device=device)
    stats = torch.empty((num_rows, 2), dtype=torch.float32, device=device)
    stride = logits.stride(0)
    shift = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}[logits.dtype]
    each = max(1, TILE // block)
    _stream[(triton.cdiv(blocks, each), num_rows)](
        logits, probs, peaks, sums, top_k, stride, vocab_size, blocks, BLOCK=block, BLOCKS=each, num_warps=8
    )
    _decide[(num_rows,)](
        logits, probs, peaks, sums, top_k, top_p, listed, values, tokens, dense, bound, stats, stride, vocab_size,
        blocks, BLOCK=block, BLOCKS=each, PEAKS=PEAKS, CAP=CAP, TILE=TILE, STEP=32, SHIFT=shift,
        num_warps=16,
    )  # fmt: skip
    _write_dense[(triton.cdiv(vocab_size, TILE), num_rows)](
        logits, probs, dense, bound, stats, stride, vocab_size, TILE=TILE, SHIFT=shift, num_warps=8
    )
    return probs
