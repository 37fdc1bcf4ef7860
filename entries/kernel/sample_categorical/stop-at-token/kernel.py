"""Sampling by inverting the cumulative sum; a CTA walks along a row and stops at the token."""

import torch
import triton
import triton.language as tl

TILE = 16384
"""Tokens a step: 64 KB, of which the next is under way while this one is added up."""
PART = 1024
"""Tokens of the last scan."""


@triton.jit
def _walk(probs_ptr, u_ptr, token_ptr, stride_row, vocab_size, TILE: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    probs_ptr += row * stride_row
    u = tl.load(u_ptr + row).to(tl.float64)
    lane = tl.arange(0, TILE)
    ahead = tl.load(probs_ptr + lane, mask=lane < vocab_size, other=0.0)
    passed = u * 0.0  # float64 sum of all tiles before ``start``
    start = 0
    # Where the last tile that holds anything begins, and the sum before it: the answer if u is never exceeded.
    chosen = 0
    before = passed
    while start < vocab_size:
        now = ahead
        index = start + TILE + lane
        ahead = tl.load(probs_ptr + index, mask=index < vocab_size, other=0.0)
        total = tl.sum(now, axis=0).to(tl.float64)
        # A tile without probability is never chosen, whatever u is.
        chosen = tl.where(total > 0, start, chosen)
        before = tl.where(total > 0, passed, before)
        passed += total
        start = tl.where((passed > u) & (total > 0), vocab_size, start + TILE)
    # Inside the tile: sums of parts, then a scan of one part.
    PARTS: tl.constexpr = TILE // PART
    part = tl.arange(0, PARTS)
    within = tl.arange(0, PART)
    index = chosen + part[:, None] * PART + within[None, :]
    sums = tl.sum(tl.load(probs_ptr + index, mask=index < vocab_size, other=0.0), axis=1).to(tl.float64)
    ends = before + tl.cumsum(sums, axis=0)
    first = tl.min(tl.where((ends > u) & (sums > 0), part, PARTS), axis=0)
    first = tl.where(first == PARTS, tl.max(tl.where(sums > 0, part, 0), axis=0), first)
    before += tl.sum(tl.where(part < first, sums, 0.0), axis=0)
    index = chosen + first * PART + within
    probs = tl.load(probs_ptr + index, mask=index < vocab_size, other=0.0)
    inside = before + tl.cumsum(probs.to(tl.float64), axis=0)
    hit = tl.min(tl.where((inside > u) & (probs > 0), within, PART), axis=0)
    hit = tl.where(hit == PART, tl.max(tl.where(probs > 0, within, 0), axis=0), hit)
    tl.store(token_ptr + row, (chosen + first * PART + hit).to(tl.int64))


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the first index whose cumulative probability exceeds u.

    Args:
        probs: float32 [num_rows, vocab_size], last axis contiguous.
        u: float32 [num_rows].

    Returns:
        int64 [num_rows]; no scratch memory.
    """
    num_rows, vocab_size = probs.shape
    token = torch.empty((num_rows,), dtype=torch.int64, device=probs.device)
    if num_rows:
        _walk[(num_rows,)](
            probs, u.contiguous(), token, probs.stride(0), vocab_size, TILE=TILE, PART=PART, num_warps=32
        )
    return token
