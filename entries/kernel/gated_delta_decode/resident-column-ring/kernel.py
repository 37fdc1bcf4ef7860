"""One step of the gated delta rule; resident CTAs walk over state tiles whose keys are split over four warps."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _delta_walk(
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
    items,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    rows = tl.arange(0, BLOCK_K)
    pieces = tl.cdiv(dim_v, BLOCK_V)
    # The state of the next tiles comes in by asynchronous copies while this one is reduced and written.
    for item in tl.range(tl.program_id(0), items, tl.num_programs(0), num_stages=STAGES):
        pair = (item // pieces).to(tl.int64)  # sequence and value head
        seq = pair // v_heads
        head = pair % v_heads
        cols = (item % pieces) * BLOCK_V + tl.arange(0, BLOCK_V)
        tile = pair * dim * dim_v + rows[:, None] * dim_v + cols[None, :]
        keep = (rows < dim)[:, None] & (cols < dim_v)[None, :]
        memory = tl.load(state_ptr + tile, mask=keep, other=0.0)
        q_row = seq * stride_qs + (head // group) * stride_qh
        k_row = seq * stride_ks + (head // group) * stride_kh
        q = tl.load(q_ptr + q_row + rows, mask=rows < dim, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + k_row + rows, mask=rows < dim, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + seq * stride_vs + head * stride_vh + cols, mask=cols < dim_v, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + pair)
        decay = tl.exp(tl.load(g_ptr + pair))
        # Both products take the old state, and the decay is a factor of their sums, not of the tile.
        seen = tl.sum(memory * k[:, None], axis=0)
        asked = tl.sum(memory * q[:, None], axis=0)
        u = beta * (v - decay * seen)
        y = scale * (decay * asked + tl.sum(k * q, axis=0) * u)
        tl.store(new_ptr + tile, decay * memory + k[:, None] * u[None, :], mask=keep)
        tl.store(y_ptr + pair * dim_v + cols, y.to(y_ptr.dtype.element_ty), mask=cols < dim_v)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


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
    places = 3 * _processors(v.device)
    # 32 columns are a whole line a row; with fewer tiles than places, 16 columns give twice as many warps.
    few = num_seqs * v_heads * triton.cdiv(dim_v, 32) < places
    block_v = min(16 if few else 32, triton.next_power_of_2(dim_v))
    items = num_seqs * v_heads * triton.cdiv(dim_v, block_v)
    _delta_walk[(min(items, places),)](
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
        items,
        BLOCK_K=triton.next_power_of_2(dim),
        BLOCK_V=block_v,
        STAGES=3,
        num_warps=4,
    )
    return y, new_state
