"""Gated RMSNorm per head: a CTA keeps its heads and the weight, and walks down the tokens, one token ahead."""

import torch
import triton
import triton.language as tl


@triton.jit
def _heads(ptr, token, head, cols, token_stride, head_stride, num_tokens, HEADS: tl.constexpr, DIM: tl.constexpr):
    inside = (head < tl.where(token < num_tokens, HEADS, 0))[:, None] & (cols < DIM)[None, :]
    source = ptr + token.to(tl.int64) * token_stride + head.to(tl.int64)[:, None] * head_stride + cols[None, :]
    return tl.load(source, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["num_tokens"])
def _gated_rmsnorm_walk(
    x_ptr, gate_ptr, weight_ptr, y_ptr, x_token, x_head, gate_token, gate_head, num_tokens, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    step = tl.num_programs(0)
    head = tl.program_id(1) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    cols = tl.arange(0, BLOCK)
    kept = (head < HEADS)[:, None] & (cols < DIM)[None, :]
    x_now = _heads(x_ptr, token, head, cols, x_token, x_head, num_tokens, HEADS, DIM)
    gate_now = _heads(gate_ptr, token, head, cols, gate_token, gate_head, num_tokens, HEADS, DIM)
    weight = tl.load(weight_ptr + cols, mask=cols < DIM, other=0.0).to(tl.float32)[None, :]
    for _ in range(tl.program_id(0), num_tokens, step):
        # Both inputs of the next token are asked for before this one is reduced; past the end they are masked off.
        x_next = _heads(x_ptr, token + step, head, cols, x_token, x_head, num_tokens, HEADS, DIM)
        gate_next = _heads(gate_ptr, token + step, head, cols, gate_token, gate_head, num_tokens, HEADS, DIM)
        x, gate = x_now.to(tl.float32), gate_now.to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / DIM + eps)
        power = tl.exp(-tl.abs(gate))  # at most 1: the sigmoid overflows on neither side
        y = x * rstd[:, None] * weight * (gate * tl.where(gate < 0.0, power, 1.0) / (1.0 + power))
        target = y_ptr + token.to(tl.int64) * (HEADS * DIM) + head[:, None] * DIM + cols[None, :]
        tl.store(target, y.to(y_ptr.dtype.element_ty), mask=kept)
        x_now, gate_now, token = x_next, gate_next, token + step


def run(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return rmsnorm(x) * weight * silu(gate), new and contiguous.

    x and gate [num_tokens, num_heads, head_dim <= 1024] with any token and head strides; weight [head_dim].
    """
    num_tokens, num_heads, head_dim = x.shape
    y = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(2) == 1 else x.contiguous()
    gate = gate if gate.stride(2) == 1 else gate.contiguous()
    block, all_heads = triton.next_power_of_2(head_dim), triton.next_power_of_2(num_heads)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    # Up to 1024 elements of each input a CTA, 8 a lane; fewer, down to 256, while that leaves less than three CTAs an SM.
    heads = min(all_heads, max(1, 1024 // block))
    while heads * block > 256 and num_tokens * triton.cdiv(num_heads, heads) < 3 * sms:
        heads = max(1, heads // 2)
    groups = triton.cdiv(num_heads, heads)
    turns = triton.cdiv(num_tokens * groups, 8 * sms)
    _gated_rmsnorm_walk[(triton.cdiv(num_tokens, turns), groups)](
        x, gate, weight.contiguous(), y, x.stride(0), x.stride(1), gate.stride(0), gate.stride(1), num_tokens, eps,
        HEADS=num_heads, DIM=head_dim, HEAD_BLOCK=heads, BLOCK=block, num_warps=min(4, max(1, heads * block // 256)),
    )  # fmt: skip
    return y
