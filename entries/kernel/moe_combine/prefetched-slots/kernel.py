"""Weighted sum of expert rows: resident CTAs walk over tokens, the next token's slots on their way during the sum."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Columns of a CTA: four warps, 8 columns a lane, 16-byte loads in 16 bits."""

CTAS = 8
"""CTAs of four warps an SM that are started: 32 warps, each with its slots' rows in flight."""


@triton.jit
def _combine_walk(
    rows_ptr, slot_ptr, weight_ptr, y_ptr, stride_row, tokens, hidden, TOP_K: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = column < hidden
    slot = tl.arange(0, SLOTS)
    step = tl.num_programs(0)
    token = tl.program_id(0)
    at = token + tl.zeros([], tl.int64)
    there = slot < TOP_K  # the grid has no more CTAs than there are tokens
    row = tl.load(slot_ptr + at * TOP_K + slot, mask=there, other=-1)
    share = tl.load(weight_ptr + at * TOP_K + slot, mask=there, other=0.0)
    while token < tokens:
        at = token + tl.zeros([], tl.int64)
        source = row.to(tl.int64)[:, None] * stride_row + column[None, :]
        found = tl.load(rows_ptr + source, mask=(row >= 0)[:, None] & own[None, :], other=0.0)
        # Asked for while the rows are on their way, so that the chain from slot to row is paid once and not per token.
        after = at + step
        there = slot < tl.where(after < tokens, TOP_K, 0)
        next_row = tl.load(slot_ptr + after * TOP_K + slot, mask=there, other=-1)
        next_share = tl.load(weight_ptr + after * TOP_K + slot, mask=there, other=0.0)
        total = tl.sum(share[:, None] * found.to(tl.float32), axis=0)
        tl.store(y_ptr + at * hidden + column, total.to(y_ptr.dtype.element_ty), mask=own)
        row, share = next_row, next_share
        token += step


def run(expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of the rows that each token's slots name.

    Args:
        expert_out: [num_tokens * top_k, hidden_size], rows sorted by expert.
        slot_to_row: int32 [num_tokens, top_k], the row of each slot; -1 adds nothing.
        topk_weights: float32 [num_tokens, top_k].

    Returns:
        [num_tokens, hidden_size] in the dtype of the rows; sums in float32, in an order fixed by the shape.
    """
    tokens, top_k = slot_to_row.shape
    hidden = expert_out.shape[1]
    y = torch.empty((tokens, hidden), dtype=expert_out.dtype, device=expert_out.device)
    if y.numel() == 0:
        return y
    if expert_out.stride(1) != 1:
        expert_out = expert_out.contiguous()
    sms = torch.cuda.get_device_properties(y.device).multi_processor_count if y.is_cuda else 2
    pieces = triton.cdiv(hidden, BLOCK)
    _combine_walk[(min(tokens, triton.cdiv(CTAS * sms, pieces)), pieces)](
        expert_out, slot_to_row.contiguous(), topk_weights.contiguous(), y, expert_out.stride(0), tokens, hidden,
        TOP_K=top_k, SLOTS=triton.next_power_of_2(top_k), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return y
