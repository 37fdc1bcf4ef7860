"""Dense GEMM with MXFP4 weights decoded in registers; k is split over CTAs when few rows leave the grid small."""

import torch
import triton
import triton.language as tl


@triton.jit
def _e2m1_times(bits, scale, dtype: tl.constexpr):
    # bits: sign at 31, exponent and mantissa of e2m1 at 24..22, which as a float32 is the value times 2^-126.
    return (bits.to(tl.float32, bitcast=True) * scale).to(dtype)


@triton.jit
def _dot(a, b, acc, CPU: tl.constexpr):
    if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _gemm_mxfp4(
    x_ptr, packed_ptr, scale_ptr, y_ptr, M, N, K, packed_stride, scale_stride, k_per_split,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, CPU: tl.constexpr,
):
    MASK: tl.constexpr = -2118123520  # 0x81C00000
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    # Tiles of x vary fastest: CTAs that run together decode the same weights and find them in L2.
    m_tiles = tl.cdiv(M, BLOCK_M)
    cols = (tl.program_id(0) // m_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = (tl.program_id(0) % m_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(1)
    low_k = split * k_per_split
    weight_row = tl.minimum(cols, N - 1).to(tl.int64)
    token_row = tl.minimum(rows, M - 1).to(tl.int64)
    pair = low_k // 2 + tl.arange(0, BLOCK_K // 2)
    block = low_k // 32 + tl.arange(0, BLOCK_K // 32)
    k = low_k + tl.arange(0, BLOCK_K)
    packed_ptrs = packed_ptr + weight_row[:, None] * packed_stride + pair[None, :]
    scale_ptrs = scale_ptr + weight_row[:, None] * scale_stride + block[None, :]
    x_ptrs = x_ptr + token_row[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, k_per_split, BLOCK_K):
        if EVEN_K:
            v = tl.load(packed_ptrs).to(tl.int32)
            s = tl.load(scale_ptrs)
            x = tl.load(x_ptrs)
        else:
            v = tl.load(packed_ptrs, mask=pair[None, :] < packed_stride - start_k // 2, other=0).to(tl.int32)
            s = tl.load(scale_ptrs, mask=block[None, :] < scale_stride - start_k // 32, other=0)
            x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
        # 2^(byte - 127 + 94) is scale * 2^94: the product below is value * scale * 2^-32, far from both ends.
        s = (tl.minimum(s.to(tl.int32) + 94, 254) << 23).to(tl.float32, bitcast=True)
        s = tl.broadcast_to(s[:, :, None], (BLOCK_N, BLOCK_K // 32, 16)).reshape(BLOCK_N, BLOCK_K // 2)
        x_even, x_odd = tl.split(tl.reshape(x, (BLOCK_M, BLOCK_K // 2, 2)))
        acc = _dot(_e2m1_times(((v << 28) >> 6) & MASK, s, dtype), tl.trans(x_even), acc, CPU)
        acc = _dot(_e2m1_times((v << 18) & MASK, s, dtype), tl.trans(x_odd), acc, CPU)
        packed_ptrs += BLOCK_K // 2
        scale_ptrs += BLOCK_K // 32
        x_ptrs += BLOCK_K
    y = tl.trans(acc * 4294967296.0).to(y_ptr.dtype.element_ty)
    y_ptrs = y_ptr + (split.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(y_ptrs, y, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _add_splits(part_ptr, y_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_ptr + split * size + at, mask=at < size, other=0.0)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < size)


def run(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """Return x @ dequantise(weight).T.

    Args:
        x: bfloat16 [m, k].
        weight_packed: uint8 [n, k / 2].
        weight_scale: uint8 (e8m0) [n, k / 32].

    Returns:
        y [m, n], dtype of x; float32 accumulation. Scratch where k is split: up to 8 float32 copies of y.
    """
    m, k = x.shape
    n = weight_packed.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x = x.contiguous()
    packed = weight_packed.contiguous().view(torch.int8)
    scale = weight_scale.contiguous()
    block_m = min(128, max(16, triton.next_power_of_2(m)))
    block_n, block_k, warps, stages = (64, 128, 4, 6) if block_m <= 32 else (128, 64, 8, 4)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    splits = max(1, min(8, 528 // tiles, k // (2 * block_k)))
    k_per_split = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k
    splits = triton.cdiv(k, k_per_split)
    part = y if splits == 1 else torch.empty((splits, m, n), dtype=torch.float32, device=x.device)
    _gemm_mxfp4[(tiles, splits)](
        x, packed, scale, part, m, n, k, packed.stride(0), scale.stride(0), k_per_split,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, EVEN_K=k % k_per_split == 0, CPU=not x.is_cuda,
        num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        _add_splits[(triton.cdiv(m * n, 512),)](part, y, m * n, SPLITS=splits, BLOCK=512, num_warps=4)
    return y.to(x.dtype)
