"""Gated delta rule token by token: a warp carries a column block of a head's state in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _delta_scan(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    beta_ptr,
    state_ptr,
    y_ptr,
    new_ptr,
    scale,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_vb,
    stride_vt,
    stride_vh,
    seq_len,
    v_heads,
    group,
    dim,
    dim_v,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    batch = (tl.program_id(1) // v_heads).to(tl.int64)
    head = tl.program_id(1) % v_heads
    rows = tl.arange(0, BLOCK_K)
    cols = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    tile = (batch * v_heads + head) * dim * dim_v + rows[:, None] * dim_v + cols[None, :]
    keep = (rows < dim)[:, None] & (cols < dim_v)[None, :]
    memory = tl.load(state_ptr + tile, mask=keep, other=0.0)
    q_ptr += batch * stride_qb + (head // group) * stride_qh
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    gate = batch * seq_len * v_heads + head
    for _ in tl.range(0, seq_len):
        q = tl.load(q_ptr + rows, mask=rows < dim, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + rows, mask=rows < dim, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + cols, mask=cols < dim_v, other=0.0).to(tl.float32)
        memory *= tl.exp(tl.load(g_ptr + gate))
        seen = tl.sum(memory * k[:, None], 0)
        asked = tl.sum(memory * q[:, None], 0)
        u = tl.load(beta_ptr + gate) * (v - seen)
        memory += k[:, None] * u[None, :]
        y = scale * (asked + tl.sum(k * q, 0) * u)
        tl.store(y_ptr + gate * dim_v + cols, y.to(y_ptr.dtype.element_ty), mask=cols < dim_v)
        q_ptr += stride_qt
        k_ptr += stride_kt
        v_ptr += stride_vt
        gate += v_heads
    tl.store(new_ptr + tile, memory, mask=keep)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the recurrence over whole sequences.

    Args:
        q: [batch_size, seq_len, num_heads, head_dim], last axis contiguous.
        k: As q.
        v: [batch_size, seq_len, num_v_heads, head_dim_v], last axis contiguous.
        g: float32 [batch_size, seq_len, num_v_heads], logarithm of the decay.
        beta: float32 [batch_size, seq_len, num_v_heads].
        state: float32 [batch_size, num_v_heads, head_dim, head_dim_v].
        scale: Factor on the output.

    Returns:
        y like v, and the last state; everything in float32 inside, no scratch memory.
    """
    batch_size, seq_len, v_heads, dim_v = v.shape
    dim = q.shape[3]
    y = torch.empty((batch_size, seq_len, v_heads, dim_v), dtype=v.dtype, device=v.device)
    state = state.contiguous()
    new_state = torch.empty_like(state)
    if new_state.numel() == 0:
        return y, new_state
    few = batch_size * v_heads * triton.cdiv(dim_v, 16) < 1024
    block_v = min(8 if few else 16, triton.next_power_of_2(dim_v))
    if v.device.type == "cpu":  # The interpreter pays for every program.
        block_v = triton.next_power_of_2(dim_v)
    _delta_scan[(triton.cdiv(dim_v, block_v), batch_size * v_heads)](
        q,
        k,
        v,
        g.contiguous(),
        beta.contiguous(),
        state,
        y,
        new_state,
        scale,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        seq_len,
        v_heads,
        v_heads // q.shape[2],
        dim,
        dim_v,
        BLOCK_K=triton.next_power_of_2(dim),
        BLOCK_V=block_v,
        num_warps=1,
        num_stages=3,
    )
    return y, new_state
