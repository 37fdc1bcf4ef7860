"""Transposed convolution of any kernel and stride: outputs are split by phase, each phase is a dense product."""

import torch
import triton
import triton.language as tl


@triton.jit
def _conv_transpose_phase(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    batch,
    height,
    width,
    in_channels,
    out_height,
    out_width,
    out_channels,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    phase_r = tl.program_id(1) // STRIDE
    phase_s = tl.program_id(1) % STRIDE
    lines = tl.cdiv(out_height, STRIDE)
    across = tl.cdiv(out_width, STRIDE)
    n_tiles = tl.cdiv(out_channels, BLOCK_N)
    rows = (tl.program_id(0) // n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_cols = cols < out_channels
    line = rows // across
    image = line // lines
    i = line % lines
    j = rows % across
    # Taps r = phase + t * stride reach this phase, from input row i - t; every program of a phase has the same number.
    taps_r = (KERNEL - phase_r + STRIDE - 1) // STRIDE
    taps_s = (KERNEL - phase_s + STRIDE - 1) // STRIDE
    ks = tl.arange(0, BLOCK_K)
    chunks = tl.cdiv(in_channels, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.maximum(taps_r, 0) * tl.maximum(taps_s, 0) * chunks):
        tap = step // chunks
        t = tap // taps_s
        u = tap % taps_s
        c = (step % chunks) * BLOCK_K + ks
        in_c = c < in_channels
        h = i - t
        v = j - u
        inside = (image < batch) & (h >= 0) & (h < height) & (v >= 0) & (v < width)
        at = ((image.to(tl.int64) * height + h) * width + v) * in_channels
        x = tl.load(x_ptr + at[:, None] + c[None, :], mask=inside[:, None] & in_c[None, :], other=0.0)
        place = (phase_r + t * STRIDE) * KERNEL + phase_s + u * STRIDE
        w_at = c[:, None] * (KERNEL * KERNEL * out_channels) + place * out_channels + cols[None, :]
        w = tl.load(w_ptr + w_at, mask=in_c[:, None] & in_cols[None, :], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=in_cols, other=0.0).to(tl.float32)[None, :]
    out_h = i * STRIDE + phase_r
    out_w = j * STRIDE + phase_s
    keep = (image < batch) & (out_h < out_height) & (out_w < out_width)
    target = ((image.to(tl.int64) * out_height + out_h) * out_width + out_w) * out_channels
    out = y_ptr + target[:, None] + cols[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=keep[:, None] & in_cols[None, :])


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 2) -> torch.Tensor:
    """Transposed convolution of x [batch, h, w, c] with weight [c, k, k, o] and bias [o]; returns a new tensor."""
    batch, height, width, in_channels = x.shape
    kernel, out_channels = weight.shape[1], weight.shape[3]
    out_height, out_width = (height - 1) * stride + kernel, (width - 1) * stride + kernel
    y = torch.empty((batch, out_height, out_width, out_channels), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    pixels = batch * triton.cdiv(out_height, stride) * triton.cdiv(out_width, stride)
    wide = max(16, triton.next_power_of_2(out_channels))
    if x.element_size() == 4:
        block_m, block_n, block_k = 64, min(64, wide), 16
    else:
        block_m, block_n = (128, min(128, wide)) if pixels * out_channels >= 128 * 128 * 128 else (64, min(64, wide))
        block_k = min(64, max(16, triton.next_power_of_2(in_channels)))
    _conv_transpose_phase[(triton.cdiv(pixels, block_m) * triton.cdiv(out_channels, block_n), stride * stride)](
        x,
        weight,
        bias,
        y,
        batch,
        height,
        width,
        in_channels,
        out_height,
        out_width,
        out_channels,
        KERNEL=kernel,
        STRIDE=stride,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=not x.is_cuda,
        num_warps=4,
        num_stages=3,
    )
    return y
