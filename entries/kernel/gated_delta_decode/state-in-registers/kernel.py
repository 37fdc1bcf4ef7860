"""One step of the gated delta rule; a warp holds a column block of a head's state in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _delta_step(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    beta_ptr,
    state_ptr,
    y_ptr,
    new_ptr,
    scale,
    stride_qs,
    stride_qh,
    stride_ks,
    stride_kh,
    stride_vs,
    stride_vh,
    v_heads,
    group,
    dim,
    dim_v,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    seq = (tl.program_id(1) // v_heads).to(tl.int64)
    head = tl.program_id(1) % v_heads
    rows = tl.arange(0, BLOCK_K)
    cols = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    base = (seq * v_heads + head) * dim * dim_v
    tile = base + rows[:, None] * dim_v + cols[None, :]
    keep = (rows < dim)[:, None] & (cols < dim_v)[None, :]
    memory = tl.load(state_ptr + tile, mask=keep, other=0.0)
    q = tl.load(q_ptr + seq * stride_qs + (head // group) * stride_qh + rows, mask=rows < dim, other=0.0).to(tl.float32)
    k = tl.load(k_ptr + seq * stride_ks + (head // group) * stride_kh + rows, mask=rows < dim, other=0.0).to(tl.float32)
    v = tl.load(v_ptr + seq * stride_vs + head * stride_vh + cols, mask=cols < dim_v, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + seq * v_heads + head)
    memory *= tl.exp(tl.load(g_ptr + seq * v_heads + head))
    # Both reductions read the old state, so neither waits for the other: S_new^T q = S^T q + (k q) u.
    seen = tl.sum(memory * k[:, None], 0)
    asked = tl.sum(memory * q[:, None], 0)
    u = beta * (v - seen)
    tl.store(new_ptr + tile, memory + k[:, None] * u[None, :], mask=keep)
    y = scale * (asked + tl.sum(k * q, 0) * u)
    tl.store(y_ptr + (seq * v_heads + head) * dim_v + cols, y.to(y_ptr.dtype.element_ty), mask=cols < dim_v)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance every sequence by one token.

    Args:
        q: [num_seqs, num_heads, head_dim], last axis contiguous.
        k: As q.
        v: [num_seqs, num_v_heads, head_dim_v], last axis contiguous.
        g: float32 [num_seqs, num_v_heads], logarithm of the decay.
        beta: float32 [num_seqs, num_v_heads].
        state: float32 [num_seqs, num_v_heads, head_dim, head_dim_v].
        scale: Factor on the output.

    Returns:
        y like v, and the new state; accumulation in float32, no scratch memory.
    """
    num_seqs, v_heads, dim_v = v.shape
    dim = q.shape[2]
    y = torch.empty((num_seqs, v_heads, dim_v), dtype=v.dtype, device=v.device)
    state = state.contiguous()
    new_state = torch.empty_like(state)
    if y.numel() == 0:
        return y, new_state
    block_k = triton.next_power_of_2(dim)
    # One warp holds 128 x 16 floats in 64 registers a thread (128 x 32 spills); few heads: narrower, so more warps.
    few = num_seqs * v_heads * triton.cdiv(dim_v, 16) < 512
    block_v = min(8 if few else 16, triton.next_power_of_2(dim_v))
    _delta_step[(triton.cdiv(dim_v, block_v), num_seqs * v_heads)](
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
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        v_heads,
        v_heads // q.shape[1],
        dim,
        dim_v,
        BLOCK_K=block_k,
        BLOCK_V=block_v,
        num_warps=1,
        num_stages=1,
    )
    return y, new_state
