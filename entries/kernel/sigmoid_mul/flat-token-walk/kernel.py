"""Attention output gate: a CTA keeps a run of a token's elements, over head borders, and walks down the tokens."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens"])
def _sigmoid_mul_walk(
    x_ptr, gate_ptr, y_ptr, x_token, x_head, gate_token, gate_head, num_tokens,
    WIDTH: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    step = tl.num_programs(0)
    # Where the elements lie inside a token is settled once: a division by a constant, none per token.
    flat = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = flat // DIM
    col = flat - head * DIM
    x_from = x_ptr + head.to(tl.int64) * x_head + col
    gate_from = gate_ptr + head.to(tl.int64) * gate_head + col
    base = token.to(tl.int64)
    x = tl.load(x_from + base * x_token, mask=flat < WIDTH, other=0.0)
    gate = tl.load(gate_from + base * gate_token, mask=flat < WIDTH, other=0.0)
    for _ in range(tl.program_id(0), num_tokens, step):
        # The next token is asked for before this one's exp; past the last token no element is left.
        there = flat < tl.where(token + step < num_tokens, WIDTH, 0)
        ahead = (token + step).to(tl.int64)
        next_x = tl.load(x_from + ahead * x_token, mask=there, other=0.0)
        next_gate = tl.load(gate_from + ahead * gate_token, mask=there, other=0.0)
        z = gate.to(tl.float32)
        power = tl.exp(-tl.abs(z))  # at most 1: the sigmoid overflows on neither side
        y = x.to(tl.float32) * tl.where(z < 0.0, power, 1.0) / (1.0 + power)
        tl.store(y_ptr + token.to(tl.int64) * WIDTH + flat, y.to(y_ptr.dtype.element_ty), mask=flat < WIDTH)
        x, gate, token = next_x, next_gate, token + step


def run(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return x * sigmoid(gate), new and contiguous.

    x and gate [num_tokens, num_heads, head_dim], token and head strides free.
    """
    num_tokens, num_heads, head_dim = x.shape
    y = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(2) == 1 else x.contiguous()
    gate = gate if gate.stride(2) == 1 else gate.contiguous()
    width = num_heads * head_dim
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    # 2048 elements, 16 a lane, if that gives every SM eight CTAs; else 8 a lane, and one warp a CTA for few tokens.
    block, warps = 256, 1
    if num_tokens * triton.cdiv(width, 2048) >= 8 * sms:
        block, warps = 2048, 4
    elif num_tokens * triton.cdiv(width, 1024) >= sms:
        block, warps = 1024, 4
    chunks = triton.cdiv(width, block)
    turns = triton.cdiv(num_tokens * chunks, 8 * sms * 4 // warps)
    _sigmoid_mul_walk[(triton.cdiv(num_tokens, turns), chunks)](
        x, gate, y, x.stride(0), x.stride(1), gate.stride(0), gate.stride(1), num_tokens,
        WIDTH=width, DIM=head_dim, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return y
