"""Convolution as an implicit product over taps and channels, channels last, without an im2col buffer."""

import torch
import triton
import triton.language as tl


@triton.jit
def _conv2d_implicit(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    pixels,
    height,
    width,
    in_channels,
    out_height,
    out_width,
    out_channels,
    stride,
    padding,
    KERNEL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    n_tiles = tl.cdiv(out_channels, BLOCK_N)
    rows = (tl.program_id(0) // n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < pixels
    in_cols = cols < out_channels
    line = rows // out_width
    top = (line % out_height) * stride - padding
    left = (rows % out_width) * stride - padding
    image = (line // out_height).to(tl.int64) * height
    corner = ((image + top) * width + left) * in_channels
    ks = tl.arange(0, BLOCK_K)
    chunks = tl.cdiv(in_channels, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # One flat loop over taps and channel chunks: the load pipeline then never drains between two taps.
    for step in range(0, KERNEL * KERNEL * chunks):
        tap = step // chunks
        r = tap // KERNEL
        s = tap % KERNEL
        c = (step % chunks) * BLOCK_K + ks
        in_c = c < in_channels
        inside = in_rows & (top + r >= 0) & (top + r < height) & (left + s >= 0) & (left + s < width)
        at = corner + (r * width + s) * in_channels
        x = tl.load(x_ptr + at[:, None] + c[None, :], mask=inside[:, None] & in_c[None, :], other=0.0)
        depth = tap * in_channels + c
        w_at = cols[None, :] * (KERNEL * KERNEL * in_channels) + depth[:, None]
        w = tl.load(w_ptr + w_at, mask=in_cols[None, :] & in_c[:, None], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=in_cols, other=0.0).to(tl.float32)[None, :]
    out = y_ptr + rows[:, None].to(tl.int64) * out_channels + cols[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


def _tiles(pixels: int, out_channels: int, size: int) -> tuple[int, int, int]:
    """Return (BLOCK_M, BLOCK_N, warps): the largest tile that still gives every SM of a large device a few."""
    if size == 4:
        return 64, 64, 4
    wide = max(16, triton.next_power_of_2(out_channels))
    for block_m, block_n, warps, least in ((256, 128, 8, 528), (128, 128, 4, 264), (64, 128, 4, 264)):
        if block_n <= wide and triton.cdiv(pixels, block_m) * triton.cdiv(out_channels, block_n) >= least:
            return block_m, block_n, warps
    return (64, min(64, wide), 4) if pixels < 16384 else (128, min(64, wide), 4)


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1
) -> torch.Tensor:
    """Convolve x [batch, h, w, c] with weight [o, k, k, c], add bias [o]; returns a new [batch, h', w', o]."""
    batch, height, width, in_channels = x.shape
    out_channels, kernel = weight.shape[:2]
    out_height = (height + 2 * padding - kernel) // stride + 1
    out_width = (width + 2 * padding - kernel) // stride + 1
    y = torch.empty((batch, out_height, out_width, out_channels), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    pixels = batch * out_height * out_width
    block_m, block_n, warps = _tiles(pixels, out_channels, x.element_size())
    block_k = 16 if x.element_size() == 4 else min(64, max(16, triton.next_power_of_2(in_channels)))
    _conv2d_implicit[(triton.cdiv(pixels, block_m) * triton.cdiv(out_channels, block_n),)](
        x,
        weight,
        bias,
        y,
        pixels,
        height,
        width,
        in_channels,
        out_height,
        out_width,
        out_channels,
        stride,
        padding,
        KERNEL=kernel,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=not x.is_cuda,
        num_warps=warps,
        num_stages=3,
    )
    return y
