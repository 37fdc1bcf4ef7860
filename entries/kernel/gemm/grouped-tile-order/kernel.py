"""GEMM for many rows: large tiles in an order that keeps both operands in L2."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gemm_tiles(
    a_ptr, b_ptr, y_ptr, M, N, K, stride_a, stride_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    CPU: tl.constexpr,
):
    # GROUP tile rows are walked column by column, so that CTAs running together share rows of a and columns of b.
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    band = pid // (GROUP * n_tiles)
    height = tl.minimum(m_tiles - band * GROUP, GROUP)
    within = pid % (GROUP * n_tiles)
    rows = (band * GROUP + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    row = tl.minimum(rows, M - 1).to(tl.int64)
    a_ptrs = a_ptr + row[:, None] * stride_a + k[None, :]
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * stride_b + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = K - start_k
            a = tl.load(a_ptrs, mask=k[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=(k[:, None] < left) & (cols[None, :] < N), other=0.0)
        if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
    y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _tile(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    if dtype == torch.float32:
        return 64, 64, 32, 4, 3
    if m <= 64 or m * n <= 132 * 128 * 128:
        return 64, 128, 64, 4, 4
    # With a few steps a tile, a fourth stage has the whole of k in flight at once.
    return 128, 256, 64, 8, 4 if k <= 512 else 3


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply a [m, k] by b [k, n]; any row strides, last axes contiguous; returns y [m, n] in the dtype of a."""
    m, k = a.shape
    n = b.shape[1]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=a.dtype if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(a.dtype)
    a = a if a.stride(1) == 1 else a.contiguous()
    b = b if b.stride(1) == 1 else b.contiguous()
    block_m, block_n, block_k, warps, stages = _tile(m, n, k, a.dtype)
    _gemm_tiles[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, y, m, n, k, a.stride(0), b.stride(0), BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        EVEN=k % block_k == 0 and n % block_n == 0, CPU=not a.is_cuda, num_warps=warps, num_stages=stages,
    )
    return y.to(a.dtype)
