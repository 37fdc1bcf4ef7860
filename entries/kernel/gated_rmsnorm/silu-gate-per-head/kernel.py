"""Gated RMSNorm per head: norm, weight and SiLU gate in one pass over short rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gated_rmsnorm(
    x_ptr, gate_ptr, weight_ptr, y_ptr, x_token, x_head, gate_token, gate_head, num_rows, head_dim, eps,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = rows // HEADS, rows % HEADS
    cols = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (cols < head_dim)[None, :]
    x_offsets = (token * x_token + head * x_head)[:, None] + cols[None, :]
    gate_offsets = (token * gate_token + head * gate_head)[:, None] + cols[None, :]
    x = tl.load(x_ptr + x_offsets, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + gate_offsets, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=cols < head_dim, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / head_dim + eps)
    power = tl.exp(-tl.abs(gate))  # at most 1: the sigmoid overflows on neither side
    y = x * rstd[:, None] * weight[None, :] * (gate * tl.where(gate < 0.0, power, 1.0) / (1.0 + power))
    tl.store(y_ptr + rows[:, None] * head_dim + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    num_rows, block = num_tokens * num_heads, triton.next_power_of_2(head_dim)
    # 2048 elements of each input a CTA (16 a thread); fewer while the grid would not fill about 4 x 132 slots.
    rows = min(max(1, 2048 // block), triton.next_power_of_2(max(1, num_rows // 528)))
    warps = min(4, max(1, rows * block // 512))
    _gated_rmsnorm[(triton.cdiv(num_rows, rows),)](
        x, gate, weight, y, x.stride(0), x.stride(1), gate.stride(0), gate.stride(1), num_rows, head_dim, eps,
        HEADS=num_heads, ROWS=rows, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return y
