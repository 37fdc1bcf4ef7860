"""NVFP4 GEMM for many rows: the weight is decoded once, then resident CTAs multiply tiles that come by TMA."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _decode_weight(packed_ptr, scale_ptr, w_ptr, num_blocks, BLOCKS: tl.constexpr):
    """Write the decoded weight in natural order, 2^-8 too small, so that float16 holds it exactly."""
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block[:, None] < num_blocks
    v = tl.load(packed_ptr + block[:, None] * 8 + tl.arange(0, 8)[None, :], mask=inside, other=0).to(tl.int32)
    s = tl.load(scale_ptr + block, mask=block < num_blocks, other=0)
    # e4m3 bits moved to float16 are the scale times 2^-8, also for subnormals; e2m1 bits moved to float32 are the
    # value times 2^-126: 2^126 leaves scale * value * 2^-8.
    s = ((s & 127).to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * 8.507059173023462e37
    low = (((v << 28) >> 6) & -2118123520).to(tl.float32, bitcast=True) * s[:, None]
    high = ((v << 18) & -2118123520).to(tl.float32, bitcast=True) * s[:, None]
    w = tl.reshape(tl.join(low, high), (BLOCKS, 16)).to(w_ptr.dtype.element_ty)
    tl.store(w_ptr + block[:, None] * 16 + tl.arange(0, 16)[None, :], w, mask=inside)


@triton.jit
def _gemm_walk(
    x_desc, w_desc, global_ptr, y_ptr, m, n, k, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, CPU: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    scale = tl.load(global_ptr) * 256.0
    # Both loops become one, so that the loads of the next tile are under way while this one is stored.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        band = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - band * GROUP, GROUP)
        within = tile % (GROUP * tiles_n)
        row = (band * GROUP + within % height) * BLOCK_M
        col = (within // height) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            # Beyond the edges, of k too, the copy engine writes zeros: no mask and no address a thread.
            x = x_desc.load([row, step * BLOCK_K])
            w = w_desc.load([col, step * BLOCK_K])
            if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
                x, w = x.to(tl.float32), w.to(tl.float32)
            acc = tl.dot(x, w.T, acc, input_precision="ieee")
        # In halves: half the shared memory on the way out.
        left, right = tl.split(tl.permute(tl.reshape(acc * scale, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        rows, cols = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N // 2)
        out = y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :]
        kind: tl.constexpr = y_ptr.dtype.element_ty
        tl.store(out, left.to(kind), mask=(rows < m)[:, None] & (cols < n)[None, :])
        tl.store(out + BLOCK_N // 2, right.to(kind), mask=(rows < m)[:, None] & (cols < n - BLOCK_N // 2)[None, :])


def _tile(m: int, n: int, sms: int) -> tuple[int, int, int]:
    """Return BLOCK_M, BLOCK_N and warps."""
    narrow, wide = (triton.cdiv(m, 128) * triton.cdiv(n, width) for width in (128, 256))
    if narrow < sms:
        return 64, 128, 4
    # A narrow tile reads a third more bytes for a product; it pays where the wide ones' last round is mostly empty.
    return (128, 128, 8) if 1.15 * triton.cdiv(narrow, sms) < 2 * triton.cdiv(wide, sms) else (128, 256, 8)


def _staged(x: torch.Tensor) -> torch.Tensor:
    """Return x as it is if the copy engine takes it (base and row stride at multiples of 16 bytes), else a copy."""
    if x.stride(1) == 1 and x.stride(0) % 8 == 0 and x.data_ptr() % 16 == 0:
        return x
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> torch.Tensor:
    """Return x @ dequantise(weight).T.

    Args:
        x: bfloat16 or float16 [m, k], k a multiple of 16.
        weight_packed: uint8 [n, k / 2].
        weight_scale: float8_e4m3fn [n, k / 16].
        weight_global_scale: float32 [1].

    Returns:
        y [m, n], dtype of x; float32 accumulation. Scratch: the weight in the dtype of x.
    """
    m, k = x.shape
    n = weight_packed.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, packed = _staged(x), weight_packed.contiguous().view(torch.int8)
    scale = weight_scale.contiguous().view(torch.uint8)
    weight = torch.empty((n, k), dtype=x.dtype, device=x.device)
    blocks = scale.numel()
    _decode_weight[(triton.cdiv(blocks, 128),)](packed, scale, weight, blocks, BLOCKS=128, num_warps=4)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    block_m, block_n, warps = _tile(m, n, sms)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    _gemm_walk[(min(tiles, sms),)](
        TensorDescriptor(x, [m, k], [x.stride(0), 1], [block_m, 64]),
        TensorDescriptor(weight, [n, k], [k, 1], [block_n, 64]),
        weight_global_scale, y, m, n, k, tiles, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=64, GROUP=8,
        CPU=not x.is_cuda, num_warps=warps, num_stages=4,
    )  # fmt: skip
    return y.to(x.dtype)
