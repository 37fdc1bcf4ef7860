"""Attention output gate, reading the gate where the fused query and gate projection left it."""

import torch
import triton
import triton.language as tl


@triton.jit
def _sigmoid_mul(
    x_ptr, gate_ptr, y_ptr, x_token, x_head, gate_token, gate_head, num_rows, head_dim,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = rows // HEADS, rows % HEADS
    cols = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (cols < head_dim)[None, :]
    gate_offsets = (token * gate_token + head * gate_head)[:, None] + cols[None, :]
    gate = tl.load(gate_ptr + gate_offsets, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + (token * x_token + head * x_head)[:, None] + cols[None, :], mask=inside, other=0.0)
    power = tl.exp(-tl.abs(gate))  # at most 1: the sigmoid overflows on neither side
    y = x.to(tl.float32) * tl.where(gate < 0.0, power, 1.0) / (1.0 + power)
    tl.store(y_ptr + rows[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    num_rows, block = num_tokens * num_heads, triton.next_power_of_2(head_dim)
    # 4096 elements a CTA (32 a thread) when there is work enough; one head a CTA in small decode batches.
    rows = min(max(1, 4096 // block), triton.next_power_of_2(max(1, num_rows // 528)))
    warps = min(4, max(1, rows * block // 256))
    _sigmoid_mul[(triton.cdiv(num_rows, rows),)](
        x, gate, y, x.stride(0), x.stride(1), gate.stride(0), gate.stride(1), num_rows, head_dim,
        HEADS=num_heads, ROWS=rows, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return y
