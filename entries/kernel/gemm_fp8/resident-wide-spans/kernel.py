"""FP8 GEMM by resident CTAs: tiles in one flat loop, float32 promotion every 512 of k."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm_walk(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPAN: tl.constexpr, GROUP: tl.constexpr,
    EVEN_K: tl.constexpr, CPU: tl.constexpr,
):
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles, steps = m_tiles * n_tiles, tl.cdiv(K, BLOCK_K)
    tile = tl.program_id(0) - tl.num_programs(0)
    mine = tl.cdiv(tiles - tl.program_id(0), tl.num_programs(0))
    scale = tl.load(a_scale_ptr) * tl.load(b_scale_ptr)
    lane_m, lane_n, lane_k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    rows, cols = lane_m, lane_n
    part = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    step = -1
    # One loop over the steps of all tiles: the loads of the next tile run under the last products of this one.
    for _ in range(mine * steps):
        step = tl.where(step == steps - 1, 0, step + 1)
        if step == 0:
            tile += tl.num_programs(0)
            band = tile // (GROUP * m_tiles)
            height = tl.minimum(n_tiles - band * GROUP, GROUP)
            within = tile % (GROUP * m_tiles)
            cols = (band * GROUP + within % height) * BLOCK_N + lane_n
            rows = (within // height) * BLOCK_M + lane_m
        k = step * BLOCK_K + lane_k
        a_ptrs = a_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + k[None, :]
        b_ptrs = b_ptr + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + k[None, :]
        if EVEN_K:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=k[None, :] < K, other=0.0)
            b = tl.load(b_ptrs, mask=k[None, :] < K, other=0.0)
        if CPU:  # Triton's interpreter would multiply the raw bytes.
            a, b = a.to(tl.float32), b.to(tl.float32)
        part = tl.dot(b, tl.trans(a), part, input_precision="ieee")
        # The matrix unit keeps 14 bits of its sum; after SPAN steps float32 takes over.
        if (step % SPAN == SPAN - 1) | (step == steps - 1):
            acc += part
            part = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
            if step == steps - 1:
                y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
                keep = (rows[:, None] < M) & (cols[None, :] < N)
                tl.store(y_ptrs, tl.trans(acc * scale).to(y_ptr.dtype.element_ty), mask=keep)
                acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return (a @ b.T) * a_scale * b_scale as bfloat16.

    Args:
        a: float8_e4m3fn [m, k].
        b: float8_e4m3fn [n, k].
        a_scale: float32 [1].
        b_scale: float32 [1].

    Returns:
        y bfloat16 [m, n]; no scratch memory.
    """
    m, k = a.shape
    n = b.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=torch.bfloat16 if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(torch.bfloat16)
    a, b = a.contiguous(), b.contiguous()
    block_m, block_n = min(128, max(16, triton.next_power_of_2(m))), 128
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    _gemm_walk[(min(tiles, _processors(a.device)),)](
        a, b, a_scale, b_scale, y, m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=128, SPAN=4, GROUP=8,
        EVEN_K=k % 128 == 0, CPU=not a.is_cuda, num_warps=8, num_stages=4,
    )
    return y.to(torch.bfloat16)
