"""Sampling by inverting the cumulative sum: block sums over the whole device, then one block is scanned."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _block_sums(probs_ptr, sums_ptr, stride_row, vocab_size, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    probs = tl.load(probs_ptr + row * stride_row + index, mask=index < vocab_size, other=0.0)
    tl.store(sums_ptr + row * tl.num_programs(0) + tl.program_id(0), tl.sum(probs, 0))


@triton.jit
def _find_token(
    probs_ptr,
    sums_ptr,
    u_ptr,
    token_ptr,
    stride_row,
    vocab_size,
    blocks,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    u = tl.load(u_ptr + row).to(tl.float64)
    place = tl.arange(0, BLOCKS)
    sums = tl.load(sums_ptr + row * blocks + place, mask=place < blocks, other=0.0).to(tl.float64)
    ends = tl.cumsum(sums, 0)
    # Blocks without probability are never chosen, whatever the rounding of the scan says.
    hit = tl.where((ends > u) & (sums > 0), place, BLOCKS)
    chosen = tl.min(hit, 0)
    chosen = tl.where(chosen == BLOCKS, tl.max(tl.where(sums > 0, place, 0), 0), chosen)
    before = tl.sum(tl.where(place < chosen, sums, 0.0), 0)
    lane = tl.arange(0, BLOCK)
    index = chosen * BLOCK + lane
    probs = tl.load(probs_ptr + row * stride_row + index, mask=index < vocab_size, other=0.0)
    inside = before + tl.cumsum(probs.to(tl.float64), 0)
    first = tl.min(tl.where((inside > u) & (probs > 0), lane, BLOCK), 0)
    last = tl.max(tl.where(probs > 0, lane, 0), 0)
    first = tl.where(first == BLOCK, last, first)
    tl.store(token_ptr + row, (chosen * BLOCK + first).to(tl.int64))


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the first index whose cumulative probability exceeds u.

    Args:
        probs: float32 [num_rows, vocab_size], last axis contiguous; vocab_size at most 2^20.
        u: float32 [num_rows].

    Returns:
        int64 [num_rows]. Scratch: 4 bytes per 1,024 tokens and row.
    """
    num_rows, vocab_size = probs.shape
    token = torch.empty((num_rows,), dtype=torch.int64, device=probs.device)
    if num_rows == 0:
        return token
    blocks = triton.cdiv(vocab_size, BLOCK)
    sums = torch.empty((num_rows, blocks), dtype=torch.float32, device=probs.device)
    _block_sums[(blocks, num_rows)](probs, sums, probs.stride(0), vocab_size, BLOCK=BLOCK, num_warps=4)
    _find_token[(num_rows,)](
        probs,
        sums,
        u.contiguous(),
        token,
        probs.stride(0),
        vocab_size,
        blocks,
        BLOCKS=triton.next_power_of_2(blocks),
        BLOCK=BLOCK,
        num_warps=4,
    )
    return token
