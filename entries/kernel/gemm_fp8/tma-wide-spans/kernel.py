"""FP8 GEMM by resident CTAs: tiles come by TMA, float32 promotion every 512 of k."""

import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _gemm_tma(
    a_desc, b_desc, a_scale_ptr, b_scale_ptr, y_ptr, M, N, K, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPAN: tl.constexpr, GROUP: tl.constexpr,
    CPU: tl.constexpr,
):  # fmt: skip
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    scale = tl.load(a_scale_ptr) * tl.load(b_scale_ptr)
    # Both loops become one, so that the loads of the next tile are under way while this one ends.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        band = tile // (GROUP * n_tiles)
        height = tl.minimum(m_tiles - band * GROUP, GROUP)
        within = tile % (GROUP * n_tiles)
        row = (band * GROUP + within % height) * BLOCK_M
        col = (within // height) * BLOCK_N
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            # Beyond the edges, of k too, the copy engine writes zeros: no mask and no address a thread.
            a = a_desc.load([row, step * BLOCK_K])
            b = b_desc.load([col, step * BLOCK_K])
            if CPU:  # Triton's interpreter would multiply the raw bytes.
                a, b = a.to(tl.float32), b.to(tl.float32)
            part = tl.dot(a, b.T, part, input_precision="ieee")
            # The matrix unit keeps 14 bits of its sum; after SPAN steps float32 takes over.
            if step % SPAN == SPAN - 1:
                acc += part
                part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        rows, cols = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N)
        keep = (rows < M)[:, None] & (cols < N)[None, :]
        y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
        tl.store(y_ptrs, ((acc + part) * scale).to(y_ptr.dtype.element_ty), mask=keep)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _staged(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as they are if the copy engine takes them (base and stride at multiples of 16 bytes), else a copy."""
    if rows.stride(1) == 1 and rows.stride(0) % 16 == 0 and rows.data_ptr() % 16 == 0:
        return rows
    height, width = rows.shape
    wider = torch.empty((height, triton.cdiv(width, 16) * 16), dtype=rows.dtype, device=rows.device)
    return wider[:, :width].copy_(rows)


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return (a @ b.T) * a_scale * b_scale as bfloat16.

    Args:
        a: float8_e4m3fn [m, k].
        b: float8_e4m3fn [n, k]. A row stride of a or b that is no multiple of 16 costs a copy.
        a_scale: float32 [1].
        b_scale: float32 [1].

    Returns:
        y bfloat16 [m, n].
    """
    m, k = a.shape
    n = b.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=torch.bfloat16 if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(torch.bfloat16)
    a, b = _staged(a), _staged(b)
    block_m, block_n, block_k = 128 if m > 64 else 64, 128, 128
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    _gemm_tma[(min(tiles, _processors(a.device)),)](
        TensorDescriptor(a, [m, k], [a.stride(0), 1], [block_m, block_k]),
        TensorDescriptor(b, [n, k], [b.stride(0), 1], [block_n, block_k]),
        a_scale, b_scale, y, m, n, k, tiles, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, SPAN=4, GROUP=16,
        CPU=not a.is_cuda, num_warps=8, num_stages=5,
    )  # fmt: skip
    return y.to(torch.bfloat16)
