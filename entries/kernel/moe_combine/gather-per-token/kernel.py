"""Weighted sum of a token's expert rows: a CTA takes a piece of one token's row and gathers all slots at once."""

import torch
import triton
import triton.language as tl


@triton.jit
def _combine(
    rows_ptr, slot_ptr, weight_ptr, y_ptr, stride_row, hidden, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = column < hidden
    total = tl.zeros([BLOCK], tl.float32)
    for slot in tl.static_range(TOP_K):
        row = tl.load(slot_ptr + token * TOP_K + slot).to(tl.int64)
        share = tl.load(weight_ptr + token * TOP_K + slot)
        # A slot of -1 has no columns: it is not loaded at all, as no weight undoes a NaN.
        there = column < tl.where(row >= 0, hidden, 0)
        found = tl.load(rows_ptr + row * stride_row + column, mask=there, other=0.0)
        total += share * found.to(tl.float32)
    tl.store(y_ptr + token * hidden + column, total.to(y_ptr.dtype.element_ty), mask=own)


def run(expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of the rows that each token's slots name.

    Args:
        expert_out: [num_tokens * top_k, hidden_size], rows sorted by expert.
        slot_to_row: int32 [num_tokens, top_k], the row of each slot; -1 adds nothing.
        topk_weights: float32 [num_tokens, top_k].

    Returns:
        [num_tokens, hidden_size] in the dtype of the rows; slots are added in order, in float32.
    """
    tokens, top_k = slot_to_row.shape
    hidden = expert_out.shape[1]
    y = torch.empty((tokens, hidden), dtype=expert_out.dtype, device=expert_out.device)
    if y.numel() == 0:
        return y
    if expert_out.stride(1) != 1:
        expert_out = expert_out.contiguous()
    # One warp a CTA until the tokens alone fill the device: at one token its eight rows are read by eight CTAs.
    block = 256 if tokens < 256 else min(1024, triton.next_power_of_2(hidden))
    _combine[(tokens, triton.cdiv(hidden, block))](
        expert_out, slot_to_row.contiguous(), topk_weights.contiguous(), y, expert_out.stride(0), hidden,
        TOP_K=top_k, BLOCK=block, num_warps=max(1, block // 256),
    )  # fmt: skip
    return y
