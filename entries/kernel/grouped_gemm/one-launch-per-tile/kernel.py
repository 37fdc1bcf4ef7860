"""Grouped GEMM with a CTA a tile: every group gets the grid of the longest possible one, empty CTAs leave at once."""

import torch
import triton
import triton.language as tl


@triton.jit
def _grouped_tile(
    x_ptr, weight_ptr, offsets_ptr, y_ptr, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, CPU: tl.constexpr,
):
    expert = tl.program_id(2)
    start = tl.load(offsets_ptr + expert) + tl.program_id(1) * BLOCK_M
    end = tl.load(offsets_ptr + expert + 1)
    if start >= end:
        return
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    row = tl.minimum(rows, end - 1).to(tl.int64)
    weight_row = expert.to(tl.int64) * N + tl.minimum(cols, N - 1)
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]
    w_ptrs = weight_ptr + weight_row[None, :] * K + k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        else:
            x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
            w = tl.load(w_ptrs, mask=k[:, None] < K - start_k, other=0.0)
        if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
            x, w = x.to(tl.float32), w.to(tl.float32)
        acc = tl.dot(x, w, acc, input_precision="ieee")
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < N))


def run(x: torch.Tensor, weight: torch.Tensor, expert_offsets: torch.Tensor) -> torch.Tensor:
    """Multiply the rows of every expert by its weight transposed; no host synchronisation.

    Args:
        x: [num_tokens_expanded, k], sorted by expert.
        weight: [num_experts, n, k].
        expert_offsets: int32 [num_experts + 1].

    Returns:
        y [num_tokens_expanded, n], dtype of x; float32 accumulation.
    """
    num_tokens, k = x.shape
    num_experts, n, _ = weight.shape
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((num_tokens, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, weight = x.contiguous(), weight.contiguous()
    if x.dtype == torch.float32:
        block_m, block_n, block_k, warps, stages = 64, 64, 32, 4, 3
    else:
        block_m, block_n, block_k, warps, stages = 128, 128, 64, 8, 4
    _grouped_tile[(triton.cdiv(n, block_n), triton.cdiv(num_tokens, block_m), num_experts)](
        x, weight, expert_offsets, y, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        EVEN_K=k % block_k == 0, CPU=not x.is_cuda, num_warps=warps, num_stages=stages,
    )
    return y.to(x.dtype)
