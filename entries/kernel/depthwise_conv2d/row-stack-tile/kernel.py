"""Depthwise convolution, channels last: a thread owns a stack of output rows; columns are shifted through L1."""

import torch
import triton
import triton.language as tl


@triton.jit
def _depthwise_stack(
    x_ptr, w_ptr, b_ptr, y_ptr, height, row_tiles,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SIDE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = SIDE // 2
    first = (tl.program_id(1) % row_tiles) * ROWS
    # Row 0 of the stack, in units of rows of the whole batch.
    origin = (tl.program_id(1) // row_tiles).to(tl.int64) * height + first
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[:, None]
    channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    in_channels = channel < CHANNELS
    # Weights and bias take the shape of the tile, so that they come in its layout and need no exchange.
    taps = w_ptr + channel + col * 0
    sums = ()
    bias = tl.load(b_ptr + channel + col * 0, mask=in_channels, other=0.0).to(tl.float32)
    for _ in tl.static_range(ROWS):
        sums = sums + (bias,)
    # Width and channels are constants: the offsets of all rows are immediates of one address.
    source = x_ptr + ((origin - half) * WIDTH + col - half) * CHANNELS + channel
    for shift in range(SIDE):
        at = col + (shift - half)
        there = (at >= 0) & (at < WIDTH) & in_channels
        pixels = ()
        for i in tl.static_range(ROWS + SIDE - 1):
            row = at * 0 + (first + (i - half))
            inside = there & (row >= 0) & (row < height)
            pixels = pixels + (tl.load(source + i * WIDTH * CHANNELS, mask=inside, other=0.0),)
        weights = ()
        for r in tl.static_range(SIDE):
            weights = weights + (tl.load(taps + r * SIDE * CHANNELS, mask=in_channels, other=0.0).to(tl.float32),)
        for i in tl.static_range(ROWS + SIDE - 1):
            pixel = pixels[i].to(tl.float32)
            added = ()
            for r in tl.static_range(ROWS):
                # Input row i of the stack is tap i - r of output row r.
                if i >= r and i - r < SIDE:
                    added = added + (sums[r] + pixel * weights[i - r],)
                else:
                    added = added + (sums[r],)
            sums = added
        source += CHANNELS
        taps += CHANNELS
    target = y_ptr + (origin * WIDTH + col) * CHANNELS + channel
    keep = (col < WIDTH) & in_channels
    for r in tl.static_range(ROWS):
        below = (col * 0 + (first + r)) < height
        tl.store(target + r * WIDTH * CHANNELS, sums[r].to(y_ptr.dtype.element_ty), mask=keep & below)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Convolve each channel of x [batch, h, w, c] with weight [k, k, c], k odd, add bias [c]; a new tensor like x."""
    batch, height, width, channels = x.shape
    side = weight.shape[0]
    y = torch.empty((batch, height, width, channels), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    # Two warps on 4 columns of 64 channels: four channels a thread, eight bytes in 16 bits. Small images: more CTAs.
    rows, cols, block_c = (8 if height >= 32 else 4), 4, 64
    row_tiles = triton.cdiv(height, rows)
    _depthwise_stack[(triton.cdiv(width, cols), row_tiles * batch, triton.cdiv(channels, block_c))](
        x, weight, bias, y, height, row_tiles, WIDTH=width, CHANNELS=channels, SIDE=side,
        ROWS=rows, COLS=cols, BLOCK_C=block_c, num_warps=2,
    )  # fmt: skip
    return y
