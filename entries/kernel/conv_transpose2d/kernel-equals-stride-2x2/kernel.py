"""Transposed convolution with kernel 2 and stride 2: four products and a pixel shuffle in the store."""

import torch
import triton
import triton.language as tl


@triton.jit
def _conv_transpose2x2(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    pixels,
    width,
    in_channels,
    out_channels,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    per_tap = tl.cdiv(out_channels, BLOCK_N)
    column_tile = tl.program_id(0) % (4 * per_tap)
    tap = column_tile // per_tap
    rows = (tl.program_id(0) // (4 * per_tap)) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (column_tile % per_tap) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < pixels
    in_cols = cols < out_channels
    ks = tl.arange(0, BLOCK_K)
    x_at = x_ptr + rows[:, None].to(tl.int64) * in_channels + ks[None, :]
    w_at = w_ptr + ks[:, None] * (4 * out_channels) + tap * out_channels + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, in_channels, BLOCK_K):
        in_k = start + ks < in_channels
        x = tl.load(x_at + start, mask=in_rows[:, None] & in_k[None, :], other=0.0)
        w = tl.load(w_at + start * (4 * out_channels), mask=in_k[:, None] & in_cols[None, :], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=in_cols, other=0.0).to(tl.float32)[None, :]
    # Input pixel (line, column) feeds output pixel (2 line + tap / 2, 2 column + tap % 2); `line` runs through the batch.
    line = (rows // width).to(tl.int64)
    target = (2 * line + tap // 2) * (2 * width) + 2 * (rows % width) + tap % 2
    out = y_ptr + target[:, None] * out_channels + cols[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


def _tiles(pixels: int, out_channels: int, size: int) -> tuple[int, int]:
    """Return (BLOCK_M, BLOCK_N): 128 x 128 unless that leaves SMs idle or the channels are fewer."""
    wide = max(16, triton.next_power_of_2(out_channels))
    if size == 4:
        return 64, min(64, wide)
    block_n = min(128, wide)
    for block_m in (128, 64):
        if triton.cdiv(pixels, block_m) * triton.cdiv(out_channels, block_n) * 4 >= 256:
            return block_m, block_n
    return 64, min(64, block_n)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 2) -> torch.Tensor:
    """Upsample x [batch, h, w, c] with weight [c, 2, 2, o] and bias [o] to a new [batch, 2h, 2w, o]."""
    if stride != 2 or tuple(weight.shape[1:3]) != (2, 2):
        raise ValueError("this kernel needs a 2 x 2 kernel and stride 2")
    batch, height, width, in_channels = x.shape
    out_channels = weight.shape[3]
    y = torch.empty((batch, 2 * height, 2 * width, out_channels), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    pixels = batch * height * width
    block_m, block_n = _tiles(pixels, out_channels, x.element_size())
    block_k = 16 if x.element_size() == 4 else min(64, max(16, triton.next_power_of_2(in_channels)))
    _conv_transpose2x2[(triton.cdiv(pixels, block_m) * triton.cdiv(out_channels, block_n) * 4,)](
        x,
        weight,
        bias,
        y,
        pixels,
        width,
        in_channels,
        out_channels,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=not x.is_cuda,
        num_warps=4,
        num_stages=3,
    )
    return y
