"""Expert routing, a warp a token: logits become sortable integers with the expert id in the low bits."""

import torch
import triton
import triton.language as tl


@triton.jit
def _route_rows(
    logits_ptr,
    weights_ptr,
    ids_ptr,
    stride_row,
    num_tokens,
    num_experts,
    top_k,
    RENORMALIZE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, BLOCK_E)
    inside = (row < num_tokens)[:, None] & (expert < num_experts)[None, :]
    x = tl.load(logits_ptr + row[:, None] * stride_row + expert[None, :], mask=inside, other=0.0).to(tl.float32)
    x += 0.0  # -0.0 becomes 0.0: they are equal, but their bits are not
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # A larger key is a larger logit, then a lower id; all keys of a row differ, so removing one removes one.
    key = (bits.to(tl.int64) << 32) | (0x7FFFFFFF - expert)[None, :].to(tl.int64)
    lowest = -0x7FFFFFFFFFFFFFFF
    key = tl.where(inside, key, lowest)
    place = tl.arange(0, BLOCK_K)
    best = tl.full([ROWS, BLOCK_K], 0, tl.int64)
    for rank in tl.range(0, top_k):
        top = tl.max(key, 1)
        best = tl.where(place[None, :] == rank, top[:, None], best)
        key = tl.where(key == top[:, None], lowest, key)
    chosen = (row < num_tokens)[:, None] & (place < top_k)[None, :]
    ids = 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32)
    high = (best >> 32).to(tl.int32)
    value = tl.where(high < 0, high ^ 0x7FFFFFFF, high).to(tl.float32, bitcast=True)
    value = tl.where(chosen, value, float("-inf"))
    peak = tl.where(row < num_tokens, tl.max(value, 1), 0.0)
    weight = tl.exp(value - peak[:, None])
    if RENORMALIZE:
        total = tl.sum(weight, 1)
    else:
        total = tl.sum(tl.where(inside, tl.exp(x - peak[:, None]), 0.0), 1)
    total = tl.where(row < num_tokens, total, 1.0)
    out = row[:, None] * top_k + place[None, :]
    tl.store(weights_ptr + out, weight / total[:, None], mask=chosen)
    tl.store(ids_ptr + out, ids, mask=chosen)


def run(logits: torch.Tensor, top_k: int, renormalize: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose experts.

    Args:
        logits: [num_tokens, num_experts], last axis contiguous, finite.
        top_k: Experts a token.
        renormalize: 1: the chosen weights add up to one.

    Returns:
        Weights float32 and ids int32, both [num_tokens, top_k], best first, ties by lower id. No scratch memory.
    """
    num_tokens, num_experts = logits.shape
    weights = torch.empty((num_tokens, top_k), dtype=torch.float32, device=logits.device)
    ids = torch.empty((num_tokens, top_k), dtype=torch.int32, device=logits.device)
    if weights.numel() == 0:
        return weights, ids
    rows = 4 if num_tokens >= 512 else 1
    _route_rows[(triton.cdiv(num_tokens, rows),)](
        logits,
        weights,
        ids,
        logits.stride(0),
        num_tokens,
        num_experts,
        top_k,
        RENORMALIZE=bool(renormalize),
        ROWS=rows,
        BLOCK_E=triton.next_power_of_2(num_experts),
        BLOCK_K=triton.next_power_of_2(top_k),
        num_warps=rows,
    )
    return weights, ids
