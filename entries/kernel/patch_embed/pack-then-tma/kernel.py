"""Patch embedding in two launches: patches are packed to rows of memory, then multiplied by resident CTAs with TMA."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _pack(
    x_ptr, w_ptr, packed_ptr, padded_ptr, tokens, patches_h, patches_w, embed_dim,
    CHANNELS: tl.constexpr, LINES: tl.constexpr, UNITS: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Copy patches, and the weight behind them, to rows of STRIDE units, a unit being one pixel or an aligned pair."""
    DEPTH: tl.constexpr = CHANNELS * LINES * UNITS
    ks = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inner = ks % (LINES * UNITS)
    in_k = (ks < DEPTH)[None, :]
    token_blocks = tl.cdiv(tokens, BLOCK_T)
    if tl.program_id(0) < token_blocks:
        rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
        width = patches_w * UNITS
        plane = patches_h * LINES * width
        line = rows // patches_w  # image row of patches, counted through the batch
        image = (line // patches_h).to(tl.int64) * (CHANNELS * plane)
        corner = image + (line % patches_h) * LINES * width + (rows % patches_w) * UNITS
        step = (ks // (LINES * UNITS)) * plane + (inner // UNITS) * width + inner % UNITS
        keep = (rows < tokens)[:, None] & in_k
        value = tl.load(x_ptr + corner[:, None] + step[None, :], mask=keep, other=0)
        tl.store(packed_ptr + rows.to(tl.int64)[:, None] * STRIDE + ks[None, :], value, mask=keep)
    else:
        rows = (tl.program_id(0) - token_blocks) * BLOCK_T + tl.arange(0, BLOCK_T)
        keep = (rows < embed_dim)[:, None] & in_k
        value = tl.load(w_ptr + rows[:, None] * DEPTH + ks[None, :], mask=keep, other=0)
        tl.store(padded_ptr + rows[:, None] * STRIDE + ks[None, :], value, mask=keep)


@triton.jit
def _gemm_walk(
    x_desc, w_desc, y_ptr, m, n, k, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    # Both loops become one, so that the loads of the next tile are under way while this one is stored.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        band = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - band * GROUP, GROUP)
        within = tile % (GROUP * tiles_n)
        row = (band * GROUP + within % height) * BLOCK_M
        col = (within // height) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            # Beyond the edges, of k too, the copy engine writes zeros: what lies between rows is never read.
            x = x_desc.load([row, step * BLOCK_K])
            w = w_desc.load([col, step * BLOCK_K])
            if WIDEN:  # the interpreter cannot multiply bfloat16
                x, w = x.to(tl.float32), w.to(tl.float32)
            acc = tl.dot(x, w.T, acc, input_precision="ieee")
        # In halves: half the shared memory on the way out.
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        rows, cols = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N // 2)
        out = y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :]
        kind: tl.constexpr = y_ptr.dtype.element_ty
        tl.store(out, left.to(kind), mask=(rows < m)[:, None] & (cols < n)[None, :])
        tl.store(out + BLOCK_N // 2, right.to(kind), mask=(rows < m)[:, None] & (cols < n - BLOCK_N // 2)[None, :])


def _tile(tokens: int, embed_dim: int, sms: int, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    if dtype == torch.float32:
        return 64, 64, 16, 4, 3
    narrow, wide = (triton.cdiv(tokens, 128) * triton.cdiv(embed_dim, width) for width in (128, 256))
    if narrow < sms:
        return 64, 128, 64, 4, 4
    # A narrow tile reads a third more bytes for a product; it pays where the wide ones' last round is mostly empty.
    if 1.15 * triton.cdiv(narrow, sms) < 2 * triton.cdiv(wide, sms):
        return 128, 128, 64, 8, 4
    return 128, 256, 64, 8, 4


def run(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Embed images [batch, channels, h * s, w * s] with weight [embed_dim, channels, s, s]: [batch, h * w, embed_dim].

    Scratch: one padded copy of images and one of weight, rows of channels * s * s rounded up to 16 bytes.
    """
    batch, channels, height, width = images.shape
    embed_dim, _, side, _ = weight.shape
    patches_h, patches_w = height // side, width // side
    y = torch.empty((batch, patches_h * patches_w, embed_dim), dtype=images.dtype, device=images.device)
    if y.numel() == 0:
        return y
    images, weight = images.contiguous(), weight.contiguous()
    tokens, depth = batch * patches_h * patches_w, channels * side * side
    lane = 16 // images.element_size()
    stride = triton.cdiv(depth, lane) * lane
    packed = torch.empty((tokens, stride), dtype=images.dtype, device=images.device)
    padded = torch.empty((embed_dim, stride), dtype=images.dtype, device=images.device)
    # Two 16-bit pixels of an even patch lie together, aligned to 4 bytes: they travel as one number.
    pair = 2 if images.element_size() == 2 and side % 2 == 0 and not (images.data_ptr() | weight.data_ptr()) % 4 else 1
    unit = {2: torch.int16, 4: torch.int32}[images.element_size() * pair]
    block_t, block_k = 32, 64
    _pack[(triton.cdiv(tokens, block_t) + triton.cdiv(embed_dim, block_t), triton.cdiv(depth // pair, block_k))](
        images.view(unit), weight.view(unit), packed.view(unit), padded.view(unit),
        tokens, patches_h, patches_w, embed_dim, CHANNELS=channels, LINES=side, UNITS=side // pair,
        STRIDE=stride // pair, BLOCK_T=block_t, BLOCK_K=block_k, num_warps=4,
    )  # fmt: skip
    sms = torch.cuda.get_device_properties(images.device).multi_processor_count if images.is_cuda else 2
    block_m, block_n, deep, warps, stages = _tile(tokens, embed_dim, sms, images.dtype)
    tiles = triton.cdiv(tokens, block_m) * triton.cdiv(embed_dim, block_n)
    _gemm_walk[(min(tiles, sms),)](
        TensorDescriptor(packed, [tokens, depth], [stride, 1], [block_m, deep]),
        TensorDescriptor(padded, [embed_dim, depth], [stride, 1], [block_n, deep]),
        y, tokens, embed_dim, depth, tiles, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=deep, GROUP=8,
        WIDEN=not images.is_cuda, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y
