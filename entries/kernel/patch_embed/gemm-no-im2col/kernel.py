"""Patch embedding as a product that gathers its patches from the planar image, without an im2col buffer."""

import torch
import triton
import triton.language as tl


@triton.jit
def _patch_embed(
    x_ptr,
    w_ptr,
    y_ptr,
    tokens,
    patches_h,
    patches_w,
    embed_dim,
    CHANNELS: tl.constexpr,
    SIDE: tl.constexpr,
    RUN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    DEPTH: tl.constexpr = CHANNELS * SIDE * SIDE
    n_tiles = tl.cdiv(embed_dim, BLOCK_N)
    rows = (tl.program_id(0) // n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < tokens
    in_cols = cols < embed_dim
    width = patches_w * SIDE
    plane = patches_h * SIDE * width
    line = rows // patches_w  # image row of patches, counted through the batch
    image = (line // patches_h).to(tl.int64) * (CHANNELS * plane)
    corner = image + (line % patches_h) * SIDE * width + (rows % patches_w) * SIDE
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, DEPTH, BLOCK_K):
        k = start + ks
        inner = k % (SIDE * SIDE)
        step = (k // (SIDE * SIDE)) * plane + (inner // SIDE) * width + inner % SIDE
        # RUN pixels of a patch row are contiguous and aligned; the compiler cannot see it through a division by 14.
        step = tl.max_contiguous(tl.multiple_of(step, RUN), RUN)
        in_k = k < DEPTH
        x = tl.load(x_ptr + corner[:, None] + step[None, :], mask=in_rows[:, None] & in_k[None, :], other=0.0)
        w = tl.load(w_ptr + cols[None, :] * DEPTH + k[:, None], mask=in_cols[None, :] & in_k[:, None], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(x, w, acc, input_precision="ieee")
    out = y_ptr + rows[:, None].to(tl.int64) * embed_dim + cols[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


def run(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Embed images [batch, channels, h * s, w * s] with weight [embed_dim, channels, s, s] as tokens [batch, h * w, embed_dim]."""
    batch, channels, height, width = images.shape
    embed_dim, _, side, _ = weight.shape
    patches_h, patches_w = height // side, width // side
    y = torch.empty((batch, patches_h * patches_w, embed_dim), dtype=images.dtype, device=images.device)
    if y.numel() == 0:
        return y
    images, weight = images.contiguous(), weight.contiguous()
    tokens = batch * patches_h * patches_w
    block_m, block_n, block_k, stages = (64, 64, 16, 3) if images.dtype == torch.float32 else (128, 128, 32, 4)
    if block_m == 128 and triton.cdiv(tokens, 128) * triton.cdiv(embed_dim, 128) < 1024:
        block_m = 64  # few tiles: halving them evens out the last wave
    _patch_embed[(triton.cdiv(tokens, block_m) * triton.cdiv(embed_dim, block_n),)](
        images,
        weight,
        y,
        tokens,
        patches_h,
        patches_w,
        embed_dim,
        CHANNELS=channels,
        SIDE=side,
        RUN=side & -side,  # the largest power of two that divides the patch side: 2 for 14, 16 for 16
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=not images.is_cuda,
        num_warps=4,
        num_stages=stages,
    )
    return y
