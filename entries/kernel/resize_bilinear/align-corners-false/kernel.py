"""Bilinear resizing of planes with exact integer coordinates; source rows are blended along x once and reused."""

import torch
import triton
import triton.language as tl


@triton.jit
def _source(out_index, size, out_size):
    """Return (index below, index above, weight above) of output pixels; the coordinate is kept as a fraction."""
    numerator = tl.maximum((2 * out_index + 1) * size - out_size, 0)
    below = numerator // (2 * out_size)
    # A size of one is a constant to the compiler, which has no type to convert from; and a plain division of float32
    # is an approximate one on a GPU, so that half a pixel would not be a half.
    rest = (numerator - below * (2 * out_size)).to(tl.float32)
    fraction = tl.div_rn(rest, tl.cast(2 * out_size, tl.float32))
    above = tl.minimum(below + 1, size - 1)
    return tl.minimum(below, size - 1), above, fraction


@triton.jit
def _blend_row(row_ptr, x0, x1, fx, keep):
    """Blend one source row along x, at all output columns of the block."""
    left = tl.load(row_ptr + x0, mask=keep, other=0.0).to(tl.float32)
    right = tl.load(row_ptr + x1, mask=keep, other=0.0).to(tl.float32)
    return left * (1 - fx) + right * fx


@triton.jit
def _resize_bilinear(
    x_ptr, y_ptr, height, width, out_height, out_width, ROWS: tl.constexpr, BLOCK_W: tl.constexpr
):
    plane = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)
    keep = cols < out_width
    x0, x1, fx = _source(cols, width, out_width)
    source = x_ptr + plane * height * width
    target = y_ptr + plane * out_height * out_width + cols
    first = tl.program_id(1) * ROWS
    last = tl.minimum(first + ROWS, out_height)
    held0, held1, _ = _source(first, height, out_height)
    upper = _blend_row(source + held0 * width, x0, x1, fx, keep)
    lower = _blend_row(source + held1 * width, x0, x1, fx, keep)
    for row in range(first, last):
        y0, y1, fy = _source(row, height, out_height)
        if y0 != held0:
            if y0 == held1:
                upper = lower
            else:
                upper = _blend_row(source + y0 * width, x0, x1, fx, keep)
        if y1 != held1:
            lower = _blend_row(source + y1 * width, x0, x1, fx, keep)
        held0 = y0
        held1 = y1
        value = upper * (1 - fy) + lower * fy
        tl.store(target + row * out_width, value.to(y_ptr.dtype.element_ty), mask=keep)


def run(x: torch.Tensor, out_height: int, out_width: int) -> torch.Tensor:
    """Resize x [batch, channels, h, w] to a new [batch, channels, out_height, out_width]."""
    batch, channels, height, width = x.shape
    y = torch.empty((batch, channels, out_height, out_width), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x.contiguous()
    planes = batch * channels
    block_w = min(1024, triton.next_power_of_2(out_width))
    w_tiles = triton.cdiv(out_width, block_w)
    rows = 16 if planes * w_tiles * out_height >= 16384 else 4
    _resize_bilinear[(w_tiles, triton.cdiv(out_height, rows), planes)](
        x, y, height, width, out_height, out_width, ROWS=rows, BLOCK_W=block_w, num_warps=4
    )
    return y
