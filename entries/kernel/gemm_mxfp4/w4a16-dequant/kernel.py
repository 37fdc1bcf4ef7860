"""Dense GEMM with MXFP4 weights: decoded in registers for few rows, once into a scratch copy for many."""

import torch
import triton
import triton.language as tl


@triton.jit
def _decode(w, s, CPU: tl.constexpr):
    """Decode w int32 [N, J], eight e2m1 a word, times s [N, J] to [N, 8 J]; columns in the order of ``_match``.

    s is the scale * 2^94 twice in a word, as a pair of bfloat16; on the CPU a float32.
    """
    SIGN: tl.constexpr = -2147450880  # 0x80008000
    REST: tl.constexpr = 0x01C001C0
    # Nibbles p and p + 4 are 16 bits apart: two at a time go to the two halves of a word. The sign goes to the top of
    # a half, the other three bits across its exponent and mantissa: the value times 2^-126.
    t0 = _times(((w << 12) & SIGN) | ((w << 6) & REST), s, CPU)
    t1 = _times(((w << 8) & SIGN) | ((w << 2) & REST), s, CPU)
    t2 = _times(((w << 4) & SIGN) | ((w >> 2) & REST), s, CPU)
    t3 = _times((w & SIGN) | ((w >> 6) & REST), s, CPU)
    # All of this is a renaming of registers, once columns are counted as the matrix unit hands them to threads: thread
    # t of four owns columns 2t, 2t + 1 of every eight, and gets word t of every four.
    both = tl.join(tl.join(t0, t2), tl.join(t1, t3))
    both = tl.reshape(both, (w.shape[0], w.shape[1] // 4, 4, 2, 4))
    return tl.reshape(tl.permute(both, (0, 1, 4, 2, 3)), (w.shape[0], w.shape[1] * 8))


@triton.jit
def _times(r, s, CPU: tl.constexpr):
    if CPU:
        low = (r << 16).to(tl.float32, bitcast=True) * s
        high = (r & -65536).to(tl.float32, bitcast=True) * s
    else:
        FMA: tl.constexpr = "fma.rn.bf16x2 $0, $1, $2, $3;"
        r = tl.inline_asm_elementwise(FMA, "=r,r,r,r", [r, s, -2147450880], dtype=tl.int32, is_pure=True, pack=1)
        low = r.to(tl.int16).to(tl.bfloat16, bitcast=True)
        high = (r >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.join(low, high)


@triton.jit
def _match(x):
    """Bring the columns of x [M, K] into the order that ``_decode`` returns, 32 at a time."""
    blocks = tl.reshape(x, (x.shape[0], x.shape[1] // 32, 4, 2, 4))
    return tl.reshape(tl.permute(blocks, (0, 1, 4, 2, 3)), (x.shape[0], x.shape[1]))


@triton.jit
def _scale(s, CPU: tl.constexpr):
    """Return e8m0 bytes s as ``_decode`` wants them: 2^(byte - 127 + 94), so that a product is 2^-32 too small."""
    power = tl.minimum(s.to(tl.int32) + 94, 254)
    if CPU:
        return (power << 23).to(tl.float32, bitcast=True)
    return power * 0x00800080  # moved by 7 and doubled: a pair of bfloat16


@triton.jit
def _dot(a, b, acc, CPU: tl.constexpr):
    if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _gemm_mxfp4(
    x_ptr, packed_ptr, scale_ptr, y_ptr, M, N, K, packed_stride, scale_stride, steps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, CPU: tl.constexpr,
):
    # Tiles of x vary fastest: CTAs that run together decode the same weights and find them in L2.
    m_tiles = tl.cdiv(M, BLOCK_M)
    cols = (tl.program_id(0) // m_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = (tl.program_id(0) % m_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(1)
    first = split * steps  # in tiles of BLOCK_K: so the compiler sees that rows stay 16-byte aligned
    weight_row = tl.minimum(cols, N - 1).to(tl.int64)
    token_row = tl.minimum(rows, M - 1).to(tl.int64)
    word = first * (BLOCK_K // 8) + tl.arange(0, BLOCK_K // 8)
    block = first * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
    k = first * BLOCK_K + tl.arange(0, BLOCK_K)
    packed_ptrs = packed_ptr + weight_row[:, None] * packed_stride + word[None, :]
    scale_ptrs = scale_ptr + weight_row[:, None] * scale_stride + block[None, :]
    x_ptrs = x_ptr + token_row[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, steps * BLOCK_K, BLOCK_K):
        if EVEN_K:
            w = tl.load(packed_ptrs)
            s = tl.load(scale_ptrs)
            x = tl.load(x_ptrs)
        else:
            w = tl.load(packed_ptrs, mask=word[None, :] < packed_stride - start_k // 8, other=0)
            s = tl.load(scale_ptrs, mask=block[None, :] < scale_stride - start_k // 32, other=0)
            x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
        s = tl.broadcast_to(_scale(s, CPU)[:, :, None], (BLOCK_N, BLOCK_K // 32, 4))
        s = tl.reshape(s, (BLOCK_N, BLOCK_K // 8))
        acc = _dot(_decode(w, s, CPU), tl.trans(_match(x)), acc, CPU)
        packed_ptrs += BLOCK_K // 8
        scale_ptrs += BLOCK_K // 32
        x_ptrs += BLOCK_K
    y = tl.trans(acc * 4294967296.0).to(y_ptr.dtype.element_ty)
    y_ptrs = y_ptr + (split.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(y_ptrs, y, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _decode_weight(packed_ptr, scale_ptr, w_ptr, num_blocks, BLOCKS: tl.constexpr):
    """Write the decoded weight in natural order, 2^-32 too small as in the other kernel."""
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block[:, None] < num_blocks
    v = tl.load(packed_ptr + block[:, None] * 16 + tl.arange(0, 16)[None, :], mask=inside, other=0).to(tl.int32)
    s = tl.load(scale_ptr + block, mask=block < num_blocks, other=0)
    s = (tl.minimum(s.to(tl.int32) + 94, 254) << 23).to(tl.float32, bitcast=True)
    low = (((v << 28) >> 6) & -2118123520).to(tl.float32, bitcast=True) * s[:, None]
    high = ((v << 18) & -2118123520).to(tl.float32, bitcast=True) * s[:, None]
    w = tl.reshape(tl.join(low, high), (BLOCKS, 32)).to(w_ptr.dtype.element_ty)
    tl.store(w_ptr + block[:, None] * 32 + tl.arange(0, 32)[None, :], w, mask=inside)


@triton.jit
def _gemm_decoded(
    x_ptr, w_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    # GROUP tile rows are walked column by column, so that CTAs running together share rows of x and of the weight.
    m_tiles, n_tiles = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = tl.program_id(0) // (GROUP * n_tiles)
    height = tl.minimum(m_tiles - band * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * n_tiles)
    rows = (band * GROUP + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + k[None, :]
    w_ptrs = w_ptr + tl.minimum(cols, N - 1).to(tl.int64)[None, :] * K + k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        else:
            x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
            w = tl.load(w_ptrs, mask=k[:, None] < K - start_k, other=0.0)
        acc = _dot(x, w, acc, CPU)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    y = (acc * 4294967296.0).to(y_ptr.dtype.element_ty)
    y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(y_ptrs, y, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _add_splits(part_ptr, y_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_ptr + split * size + at, mask=at < size, other=0.0)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < size)


MANY_ROWS = 1024
"""From here on the weight is decoded once into scratch memory: the copy costs what 60 rows cost in arithmetic."""


def run(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """Return x @ dequantise(weight).T.

    Args:
        x: bfloat16 [m, k].
        weight_packed: uint8 [n, k / 2].
        weight_scale: uint8 (e8m0) [n, k / 32].

    Returns:
        y [m, n], dtype of x; float32 accumulation. Scratch: up to 8 float32 copies of y where k is split, a copy of
        the weight in the dtype of x for 1024 rows or more.
    """
    m, k = x.shape
    n = weight_packed.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, weight_packed = x.contiguous(), weight_packed.contiguous()
    scale = weight_scale.contiguous()
    if m >= MANY_ROWS:
        weight = torch.empty((n, k), dtype=x.dtype, device=x.device)
        blocks = scale.numel()
        _decode_weight[(triton.cdiv(blocks, 64),)](
            weight_packed.view(torch.int8), scale, weight, blocks, BLOCKS=64, num_warps=4
        )
        block_m, block_n, block_k = 128, 256, 64
        _gemm_decoded[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
            x, weight, y, m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
            EVEN_K=k % block_k == 0, CPU=not x.is_cuda, num_warps=8, num_stages=3,
        )
        return y.to(x.dtype)
    packed = weight_packed.view(torch.int32)
    block_m = min(64, max(16, triton.next_power_of_2(m)))
    block_n, block_k, warps, stages = (64, 128, 4, 4) if block_m <= 32 else (128, 64, 4, 4)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    splits = max(1, min(8, 528 // tiles, k // (2 * block_k)))
    steps = triton.cdiv(triton.cdiv(k, splits), block_k)
    splits = triton.cdiv(k, steps * block_k)
    part = y if splits == 1 else torch.empty((splits, m, n), dtype=torch.float32, device=x.device)
    _gemm_mxfp4[(tiles, splits)](
        x, packed, scale, part, m, n, k, packed.stride(0), scale.stride(0), steps,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, EVEN_K=k % (steps * block_k) == 0, CPU=not x.is_cuda,
        num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        _add_splits[(triton.cdiv(m * n, 512),)](part, y, m * n, SPLITS=splits, BLOCK=512, num_warps=4)
    return y.to(x.dtype)
