"""Patch embedding by rows of patches, each padded to a power of two: the depth loop adds scalars and never divides."""

import torch
import triton
import triton.language as tl


@triton.jit
def _pad_weight(w_ptr, padded_ptr, SIDE: tl.constexpr, PAD: tl.constexpr, STEPS: tl.constexpr, LINES: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    """Copy one channel of one output's weight to rows of PAD, zeros between and behind them."""
    k = tl.arange(0, BLOCK)
    line, col = k // PAD, k % PAD
    at = tl.program_id(0).to(tl.int64)
    value = tl.load(w_ptr + at * (SIDE * SIDE) + line * SIDE + col, mask=(line < SIDE) & (col < SIDE), other=0.0)
    tl.store(padded_ptr + at * (STEPS * LINES * PAD) + k, value, mask=k < STEPS * LINES * PAD)


@triton.jit
def _patch_rows(
    x_ptr, w_ptr, y_ptr, tokens, patches_h, patches_w, embed_dim,
    CHANNELS: tl.constexpr, SIDE: tl.constexpr, PAD: tl.constexpr, LINES: tl.constexpr, RUN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    STEPS: tl.constexpr = (SIDE + LINES - 1) // LINES
    n_tiles = tl.cdiv(embed_dim, BLOCK_N)
    rows = (tl.program_id(0) // n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    width = patches_w * SIDE
    plane = patches_h * SIDE * width
    line = rows // patches_w
    image = (line // patches_h).to(tl.int64) * (CHANNELS * plane)
    corner = image + (line % patches_h) * SIDE * width + (rows % patches_w) * SIDE
    # LINES rows of a patch a step, PAD wide: both are powers of two, so that nothing is divided by 14 or 196.
    k = tl.arange(0, LINES * PAD)
    k_line, k_col = k // PAD, k % PAD
    # RUN pixels of a row are contiguous and aligned, since patch, width and plane are multiples of RUN.
    x_step = tl.max_contiguous(tl.multiple_of(k_line * width + k_col, RUN), RUN)
    x_from = x_ptr + corner[:, None] + x_step[None, :]
    # The weight is padded alike, so that its copies are as wide as the hardware has them.
    w_from = w_ptr + cols[None, :] * (CHANNELS * STEPS * LINES * PAD) + k[:, None]
    in_rows, in_cols = (rows < tokens)[:, None], (cols < embed_dim)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, CHANNELS * STEPS, num_stages=STAGES):
        channel = step // STEPS
        first = (step % STEPS) * LINES
        there = (k_col < SIDE) & (k_line < SIDE - first)
        x = tl.load(x_from + (channel * plane + first * width), mask=in_rows & there[None, :], other=0.0)
        w = tl.load(w_from + step * (LINES * PAD), mask=in_cols, other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(x, w, acc, input_precision="ieee")
    out = y_ptr + rows[:, None].to(tl.int64) * embed_dim + cols[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=in_rows & in_cols)


def run(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Embed images [batch, channels, h * s, w * s] with weight [embed_dim, channels, s, s]: [batch, h * w, embed_dim]."""
    batch, channels, height, width = images.shape
    embed_dim, _, side, _ = weight.shape
    patches_h, patches_w = height // side, width // side
    y = torch.empty((batch, patches_h * patches_w, embed_dim), dtype=images.dtype, device=images.device)
    if y.numel() == 0:
        return y
    images, weight = images.contiguous(), weight.contiguous()
    tokens = batch * patches_h * patches_w
    wide = images.dtype == torch.float32
    block_m, block_n, depth, stages = (64, 64, 16, 3) if wide else (128, 128, 32, 4)
    if not wide and triton.cdiv(tokens, 128) * triton.cdiv(embed_dim, 128) < 1024:
        block_m = 64  # few tiles: halving them evens out the last wave
    pad = triton.next_power_of_2(side)
    lines = max(1, depth // pad)
    steps = triton.cdiv(side, lines)
    padded = torch.empty((embed_dim, channels * steps * lines * pad), dtype=weight.dtype, device=weight.device)
    _pad_weight[(embed_dim * channels,)](
        weight, padded, SIDE=side, PAD=pad, STEPS=steps, LINES=lines,
        BLOCK=triton.next_power_of_2(steps * lines * pad), num_warps=1,
    )  # fmt: skip
    _patch_rows[(triton.cdiv(tokens, block_m) * triton.cdiv(embed_dim, block_n),)](
        images, padded, y, tokens, patches_h, patches_w, embed_dim,
        CHANNELS=channels, SIDE=side, PAD=pad, LINES=lines, RUN=side & -side,
        BLOCK_M=block_m, BLOCK_N=block_n, STAGES=stages, WIDEN=not images.is_cuda, num_warps=4,
    )  # fmt: skip
    return y
