"""MoE block for a few tokens in two launches, without grouping: every slot streams its expert's rows by itself."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gate_up_slot(
    x_ptr, weight_ptr, ids_ptr, h_ptr, top_k, I, H, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr
):
    slot = tl.program_id(1).to(tl.int64)
    expert = tl.load(ids_ptr + slot).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    weight_row = expert * (2 * I) + tl.minimum(rows, I - 1)
    k = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + (slot // top_k) * H + k
    gate_ptrs = weight_ptr + weight_row[:, None] * H + k[None, :]
    up_ptrs = weight_ptr + (weight_row + I)[:, None] * H + k[None, :]
    # Sums stay apart by lane until the row is through: one exchange between lanes a row, not one a step.
    gate = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    up = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, H, BLOCK):
        if EVEN:
            x, g, u = tl.load(x_ptrs), tl.load(gate_ptrs), tl.load(up_ptrs)
        else:
            inside = k < H - start
            x = tl.load(x_ptrs, mask=inside, other=0.0)
            g = tl.load(gate_ptrs, mask=inside[None, :], other=0.0)
            u = tl.load(up_ptrs, mask=inside[None, :], other=0.0)
        x = x.to(tl.float32)[None, :]
        gate += g.to(tl.float32) * x
        up += u.to(tl.float32) * x
        x_ptrs += BLOCK
        gate_ptrs += BLOCK
        up_ptrs += BLOCK
    g = tl.sum(gate, axis=1)
    h = g * tl.sum(up, axis=1) / (1.0 + tl.exp(-g))
    tl.store(h_ptr + slot * I + rows, h, mask=rows < I)


@triton.jit
def _down_token(
    h_ptr, weight_ptr, ids_ptr, share_ptr, y_ptr, H, I, TOP_K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    token = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    safe_row = tl.minimum(rows, H - 1).to(tl.int64)
    k = tl.arange(0, BLOCK)
    # The slots of a token add up in one accumulator, in order: no row per slot in memory and no kernel to sum them.
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for place in range(TOP_K):
        slot = token * TOP_K + place
        expert = tl.load(ids_ptr + slot).to(tl.int64)
        share = tl.load(share_ptr + slot)
        w_ptrs = weight_ptr + (expert * H + safe_row)[:, None] * I + k[None, :]
        for start in tl.range(0, I, BLOCK, loop_unroll_factor=2):
            if EVEN:
                h, w = tl.load(h_ptr + slot * I + start + k), tl.load(w_ptrs + start)
            else:
                inside = k < I - start
                h = tl.load(h_ptr + slot * I + start + k, mask=inside, other=0.0)
                w = tl.load(w_ptrs + start, mask=inside[None, :], other=0.0)
            total += w.to(tl.float32) * (share * h)[None, :]
    tl.store(y_ptr + token * H + rows, tl.sum(total, axis=1).to(y_ptr.dtype.element_ty), mask=rows < H)


def run(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> torch.Tensor:
    """Apply the routed experts to x; no host synchronisation.

    Args:
        x: bfloat16 [num_tokens, hidden_size].
        gate_up_weight: [num_experts, 2 * intermediate_size, hidden_size], gate rows first.
        down_weight: [num_experts, hidden_size, intermediate_size].
        topk_ids: int32 [num_tokens, top_k].
        topk_weights: float32 [num_tokens, top_k].

    Returns:
        y [num_tokens, hidden_size], dtype of x. Scratch: top_k * intermediate_size float32 numbers a token.
    """
    num_tokens, hidden = x.shape
    inner = down_weight.shape[2]
    top_k = topk_ids.shape[1]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((num_tokens, hidden), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, gate_up_weight, down_weight = x.contiguous(), gate_up_weight.contiguous(), down_weight.contiguous()
    ids = topk_ids.contiguous()
    h = torch.empty((num_tokens * top_k, inner), dtype=torch.float32, device=x.device)
    # 8 rows by 256 columns a step: a warp owns two rows and reads 512 contiguous bytes of each.
    block, rows = 256, 8 if x.is_cuda else 64  # An interpreter pays for each program, not for its size.
    _gate_up_slot[(triton.cdiv(inner, rows), num_tokens * top_k)](
        x, gate_up_weight, ids, h, top_k, inner, hidden, ROWS=rows, BLOCK=block, EVEN=hidden % block == 0,
        num_warps=4, num_stages=1,
    )
    _down_token[(triton.cdiv(hidden, rows), num_tokens)](
        h, down_weight, ids, topk_weights.contiguous(), y, hidden, inner, TOP_K=top_k, ROWS=rows, BLOCK=block,
        EVEN=inner % block == 0, num_warps=4, num_stages=1,
    )
    return y.to(x.dtype)
