"""FP8 GEMM with one scale a tensor; weights are the left operand, k is split when the grid is small."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm_fp8(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, y_ptr, M, N, K, k_per_split,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    band = pid // (GROUP * m_tiles)
    height = tl.minimum(n_tiles - band * GROUP, GROUP)
    within = pid % (GROUP * m_tiles)
    cols = (band * GROUP + within % height) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = (within // height) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(1)
    k = split * k_per_split + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + k[None, :]
    b_ptrs = b_ptr + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, k_per_split, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=k[None, :] < K - start_k, other=0.0)
            b = tl.load(b_ptrs, mask=k[None, :] < K - start_k, other=0.0)
        if CPU:  # Triton's interpreter would multiply the raw bytes.
            a, b = a.to(tl.float32), b.to(tl.float32)
        # From a zero accumulator: Hopper's own sum keeps 14 bits, so it ends after 128 of k and float32 goes on.
        acc += tl.dot(b, tl.trans(a), input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    acc = acc * (tl.load(a_scale_ptr) * tl.load(b_scale_ptr))
    y_ptrs = y_ptr + (split.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(y_ptrs, tl.trans(acc).to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _add_splits(part_ptr, y_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_ptr + split * size + at, mask=at < size, other=0.0)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < size)


@functools.cache
def _deep(device: torch.device) -> int:
    """Return the stages of 24 KB that fit: four, or three in the 99 KB of consumer parts."""
    return 3 if torch.cuda.get_device_capability(device) in ((8, 6), (8, 9), (12, 0), (12, 1)) else 4


def _tile(m: int, device: torch.device) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    if m <= 64:
        return max(16, triton.next_power_of_2(m)), 64, 128, 4, 6
    # Partial and running sum take 64 registers each of 128 threads, and two CTAs a multiprocessor take turns: the
    # additions of one run under the products of the other. 256 x 128 would spill.
    return 128, 64, 128, 4, _deep(device) if device.type == "cuda" else 1


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return (a @ b.T) * a_scale * b_scale as bfloat16.

    Args:
        a: float8_e4m3fn [m, k].
        b: float8_e4m3fn [n, k].
        a_scale: float32 [1].
        b_scale: float32 [1].

    Returns:
        y bfloat16 [m, n]. Scratch where k is split: up to 8 float32 copies of y.
    """
    m, k = a.shape
    n = b.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=torch.bfloat16 if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(torch.bfloat16)
    a, b = a.contiguous(), b.contiguous()
    block_m, block_n, block_k, warps, stages = _tile(m, a.device)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    splits = max(1, min(8, 264 // tiles, k // (4 * block_k)))
    k_per_split = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k
    splits = triton.cdiv(k, k_per_split)
    part = y if splits == 1 else torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    _gemm_fp8[(tiles, splits)](
        a, b, a_scale, b_scale, part, m, n, k, k_per_split, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        EVEN_K=k % k_per_split == 0, CPU=not a.is_cuda, num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        _add_splits[(triton.cdiv(m * n, 512),)](part, y, m * n, SPLITS=splits, BLOCK=512, num_warps=4)
    return y.to(torch.bfloat16)
