"""FP8 GEMM with 1 x 128 and 128 x 128 scales: one product of k = 128, then a scaled float32 addition."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm_fp8_block(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, y_ptr, M, N, K, k_blocks, blocks_per_split,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, SWAP: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    band = pid // (GROUP * m_tiles)
    height = tl.minimum(n_tiles - band * GROUP, GROUP)
    within = pid % (GROUP * m_tiles)
    n_tile = band * GROUP + within % height
    cols = n_tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = (within // height) * BLOCK_M + tl.arange(0, BLOCK_M)
    row = tl.minimum(rows, M - 1).to(tl.int64)
    split = tl.program_id(1)
    first = split * blocks_per_split
    k = first * 128 + tl.arange(0, 128)
    a_ptrs = a_ptr + row[:, None] * K + k[None, :]
    b_ptrs = b_ptr + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + k[None, :]
    a_scale_ptrs = a_scale_ptr + row * k_blocks
    # BLOCK_N divides 128: one weight scale serves the whole tile in each step.
    b_scale_row = b_scale_ptr + (n_tile * BLOCK_N // 128) * k_blocks
    # Few rows: weights go left, so that rows pad to 16. Many rows: x goes left, so that a thread owns few row scales.
    if SWAP:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(first, tl.minimum(first + blocks_per_split, k_blocks)):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            inside = (block * 128 + tl.arange(0, 128))[None, :] < K
            a = tl.load(a_ptrs, mask=inside, other=0.0)
            b = tl.load(b_ptrs, mask=inside, other=0.0)
        scale = tl.load(a_scale_ptrs + block) * tl.load(b_scale_row + block)
        if CPU:  # Triton's interpreter would multiply the raw bytes.
            a, b = a.to(tl.float32), b.to(tl.float32)
        if SWAP:
            acc += tl.dot(b, tl.trans(a), input_precision="ieee") * scale[None, :]
        else:
            acc += tl.dot(a, tl.trans(b), input_precision="ieee") * scale[:, None]
        a_ptrs += 128
        b_ptrs += 128
    if SWAP:
        acc = tl.trans(acc)
    y_ptrs = y_ptr + (split.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _add_splits(part_ptr, y_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_ptr + split * size + at, mask=at < size, other=0.0)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < size)


def _tile(m: int) -> tuple[int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, warps and stages."""
    if m <= 64:
        return max(16, triton.next_power_of_2(m)), 64, 4, 4
    # 64 rows: partial and running sum take 64 registers each of 128 threads, and up to three CTAs take turns.
    return 64, 128, 4, 3


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return dequantised a times dequantised b transposed, as bfloat16.

    Args:
        a: float8_e4m3fn [m, k].
        b: float8_e4m3fn [n, k].
        a_scale: float32 [m, ceil(k / 128)].
        b_scale: float32 [ceil(n / 128), ceil(k / 128)].

    Returns:
        y bfloat16 [m, n]. Scratch where k is split: up to 8 float32 copies of y.
    """
    m, k = a.shape
    n = b.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=torch.bfloat16 if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(torch.bfloat16)
    a, b, a_scale, b_scale = a.contiguous(), b.contiguous(), a_scale.contiguous(), b_scale.contiguous()
    block_m, block_n, warps, stages = _tile(m)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    k_blocks = triton.cdiv(k, 128)
    splits = max(1, min(8, 264 // tiles, k_blocks // 4))
    blocks_per_split = triton.cdiv(k_blocks, splits)
    splits = triton.cdiv(k_blocks, blocks_per_split)
    part = y if splits == 1 else torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    _gemm_fp8_block[(tiles, splits)](
        a, b, a_scale, b_scale, part, m, n, k, k_blocks, blocks_per_split, BLOCK_M=block_m, BLOCK_N=block_n, GROUP=8,
        SWAP=m <= 64, EVEN_K=k % 128 == 0, CPU=not a.is_cuda, num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        _add_splits[(triton.cdiv(m * n, 512),)](part, y, m * n, SPLITS=splits, BLOCK=512, num_warps=4)
    return y.to(torch.bfloat16)
