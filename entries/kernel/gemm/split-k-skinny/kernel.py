"""GEMM for few rows: the wide operand goes left, k is split over CTAs, partial sums are added in a fixed order."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm_skinny(
    a_ptr, b_ptr, y_ptr, M, N, K, k_per_split, stride_a, stride_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SWAP: tl.constexpr, EVEN: tl.constexpr,
    CPU: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(2)
    k = split * k_per_split + tl.arange(0, BLOCK_K)
    row = tl.minimum(rows, M - 1).to(tl.int64)
    a_ptrs = a_ptr + row[:, None] * stride_a + k[None, :]
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * stride_b + cols[None, :]
    if SWAP:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start_k in range(0, k_per_split, BLOCK_K):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = K - start_k
            a = tl.load(a_ptrs, mask=k[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=(k[:, None] < left) & (cols[None, :] < N), other=0.0)
        if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
            a, b = a.to(tl.float32), b.to(tl.float32)
        if SWAP:
            acc = tl.dot(tl.trans(b), tl.trans(a), acc, input_precision="ieee")
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
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


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)  # asking the driver each time costs as much as a launch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply a [m, k] by b [k, n]; any row strides, last axes contiguous.

    Returns:
        y [m, n] in the dtype of a. Scratch: up to 16 float32 copies of y.
    """
    m, k = a.shape
    n = b.shape[1]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=a.dtype if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(a.dtype)
    a = a if a.stride(1) == 1 else a.contiguous()
    b = b if b.stride(1) == 1 else b.contiguous()
    block_m = min(64, max(16, triton.next_power_of_2(m)))
    block_n, block_k = 64, 32 if a.dtype == torch.float32 else 128
    tiles = triton.cdiv(n, block_n) * triton.cdiv(m, block_m)
    # Two CTAs a multiprocessor keep memory busy; each split still runs four steps, to fill the load pipeline.
    splits = max(1, min(16, 264 // tiles, k // (4 * block_k)))
    k_per_split = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k
    splits = triton.cdiv(k, k_per_split)
    part = y if splits == 1 else torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    # wgmma and tcgen05 pad the left side to 64 or 128 rows, so the wide operand goes there; mma.sync pads both alike.
    swap = a.dtype != torch.float32 and (not a.is_cuda or _capability(a.device)[0] in (9, 10))
    _gemm_skinny[(triton.cdiv(n, block_n), triton.cdiv(m, block_m), splits)](
        a, b, part, m, n, k, k_per_split, a.stride(0), b.stride(0), BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        SWAP=swap, EVEN=k % k_per_split == 0 and n % block_n == 0, CPU=not a.is_cuda, num_warps=4, num_stages=4,
    )
    if splits > 1:
        _add_splits[(triton.cdiv(m * n, 512),)](part, y, m * n, SPLITS=splits, BLOCK=512, num_warps=4)
    return y.to(a.dtype)
