"""Grouped GEMM with one CTA a multiprocessor, which walks a list of tiles that exists only on the device."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _grouped_persistent(
    x_ptr, weight_ptr, offsets_ptr, y_ptr, num_experts, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    # The prefix sum over groups is made once a CTA and stays in registers; a tile costs two reductions over it.
    e = tl.arange(0, BLOCK_E)
    low = tl.load(offsets_ptr + e, mask=e < num_experts, other=0)
    high = tl.load(offsets_ptr + e + 1, mask=e < num_experts, other=0)
    after = tl.cumsum((high - low + BLOCK_M - 1) // BLOCK_M, axis=0)
    n_tiles = tl.cdiv(N, BLOCK_N)
    total = tl.max(after, axis=0) * n_tiles
    k = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), total, tl.num_programs(0)):
        m_tile = tile // n_tiles
        expert = tl.sum((after <= m_tile).to(tl.int32), axis=0)
        first_tile = tl.max(tl.where(after <= m_tile, after, 0), axis=0)
        start = tl.load(offsets_ptr + expert) + (m_tile - first_tile) * BLOCK_M
        end = tl.load(offsets_ptr + expert + 1)
        rows = start + tl.arange(0, BLOCK_M)
        cols = (tile % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
        row = tl.minimum(rows, end - 1).to(tl.int64)
        weight_row = expert.to(tl.int64) * N + tl.minimum(cols, N - 1)
        x_ptrs = x_ptr + row[:, None] * K + k[None, :]
        w_ptrs = weight_ptr + weight_row[:, None] * K + k[None, :]
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for start_k in range(0, K, BLOCK_K):
            if EVEN_K:
                x = tl.load(x_ptrs)
                w = tl.load(w_ptrs)
            else:
                x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
                w = tl.load(w_ptrs, mask=k[None, :] < K - start_k, other=0.0)
            if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
                x, w = x.to(tl.float32), w.to(tl.float32)
            acc = tl.dot(w, tl.trans(x), acc, input_precision="ieee")
            x_ptrs += BLOCK_K
            w_ptrs += BLOCK_K
        y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
        tl.store(y_ptrs, tl.trans(acc).to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < N))


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _tile(mean_rows: int, dtype: torch.dtype) -> tuple[int, int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps, stages and resident CTAs a multiprocessor."""
    block_m = min(64, max(16, triton.next_power_of_2(mean_rows)))
    if dtype == torch.float32:
        return block_m, 64, 32, 4, 3, 2
    if block_m <= 32:
        return block_m, 64, 128, 4, 4, 2
    # Real routing is skewed: though the mean group be 128 rows long, most are far shorter and would pad such a tile.
    # The wide side is the weight, which has no padding; 64 x 256 moves as few bytes a product as 128 x 128 does.
    return block_m, 256, 64, 8, 4, 1


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
    block_m, block_n, block_k, warps, stages, resident = _tile(num_tokens // num_experts, x.dtype)
    units = _multiprocessors(x.device) if x.is_cuda else 2
    tiles = min(num_tokens, num_tokens // block_m + min(num_experts, num_tokens)) * triton.cdiv(n, block_n)
    _grouped_persistent[(min(tiles, units * resident),)](
        x, weight, expert_offsets, y, num_experts, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        BLOCK_E=triton.next_power_of_2(num_experts), EVEN_K=k % block_k == 0, CPU=not x.is_cuda, num_warps=warps,
        num_stages=stages,
    )
    return y.to(x.dtype)
