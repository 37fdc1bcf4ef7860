"""Convolution of stride 1 by shifted boxes: the copy engine fetches a square of pixels a tap and pads with zeros."""

import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _place(tile, tiles_h, tiles_w, tiles_n):
    """Return image, row, column and channel block of a tile, channels fastest: they share their pixels in L2."""
    square = tile // tiles_n
    return square // (tiles_h * tiles_w), square // tiles_w % tiles_h, square % tiles_w, tile % tiles_n


@triton.jit
def _put(
    part, bias_ptr, y_ptr, image, top, left, first_channel, out_height, out_width, out_channels,
    BOX_W: tl.constexpr, shift: tl.constexpr,
):  # fmt: skip
    """Add the bias to sums [channels, pixels], round, and only then turn them to the order of memory."""
    channel = tl.arange(0, part.shape[0]) + first_channel
    part += tl.load(bias_ptr + channel, mask=channel < out_channels, other=0.0).to(tl.float32)[:, None]
    lane = tl.arange(0, part.shape[1]) + shift
    row, col = top + lane // BOX_W, left + lane % BOX_W
    pixel = ((image * out_height + row) * out_width + col).to(tl.int64)
    inside = (row < out_height) & (col < out_width)
    y_ptrs = y_ptr + pixel[:, None] * out_channels + channel[None, :]
    y = part.to(y_ptr.dtype.element_ty).T
    tl.store(y_ptrs, y, mask=inside[:, None] & (channel < out_channels)[None, :])


@triton.jit
def _conv_boxes(
    x_desc, w_desc, bias_ptr, y_ptr, in_channels, out_height, out_width, out_channels, padding,
    tiles_h, tiles_w, tiles,
    KERNEL: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    PIXELS: tl.constexpr = BOX_H * BOX_W
    tiles_n = tl.cdiv(out_channels, BLOCK_N)
    chunks = tl.cdiv(in_channels, BLOCK_K)
    steps = KERNEL * KERNEL * chunks
    # Tiles, taps and chunks are one loop: the first taps of the next tile arrive while this one is stored.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        image, box_row, box_col, block = _place(tile, tiles_h, tiles_w, tiles_n)
        top, left, first_channel = box_row * BOX_H, box_col * BOX_W, block * BLOCK_N
        total = tl.zeros((BLOCK_N, PIXELS), tl.float32)
        for step in range(steps):
            # Chunks are slowest: the nine shifted squares of a chunk, mostly the same pixels, come one after another.
            tap = step % (KERNEL * KERNEL)
            channel = step // (KERNEL * KERNEL) * BLOCK_K
            row, col = top + tap // KERNEL - padding, left + tap % KERNEL - padding
            # Coordinates outside the image, negative ones too, come back as zeros: no mask, no address a thread.
            x = tl.reshape(x_desc.load([image, row, col, channel]), (PIXELS, BLOCK_K))
            w = tl.reshape(w_desc.load([tap, first_channel, channel]), (BLOCK_N, BLOCK_K))
            if UPCAST:  # the CPU interpreter multiplies bfloat16 as if its bits were integers
                x, w = x.to(tl.float32), w.to(tl.float32)
            total = tl.dot(w, x.T, total, input_precision="ieee")
        # In halves: half the registers on the way out, beside stages that fill for the next tile.
        first, second = tl.split(tl.permute(tl.reshape(total, (BLOCK_N, 2, PIXELS // 2)), (0, 2, 1)))
        _put(first, bias_ptr, y_ptr, image, top, left, first_channel, out_height, out_width, out_channels, BOX_W, 0)
        _put(
            second, bias_ptr, y_ptr, image, top, left, first_channel, out_height, out_width, out_channels, BOX_W,
            PIXELS // 2,
        )  # fmt: skip


def _tile(batch: int, height: int, width: int, channels: int, sms: int, size: int) -> tuple[int, int, int, int, int]:
    """Return height and width of a box of pixels, BLOCK_N, warps and stages: the largest that fills rounds of SMs."""
    if size == 4:
        return 8, 8, 32, 4, 3
    best, choice = 0.0, (8, 8, 128, 4, 4)
    for box_h, box_w, block_n, warps, gain in ((16, 16, 128, 8, 1.0), (8, 16, 128, 8, 0.85), (8, 8, 128, 4, 0.6)):
        tiles = batch * triton.cdiv(height, box_h) * triton.cdiv(width, box_w) * triton.cdiv(channels, block_n)
        used = batch * height * width * channels / (box_h * box_w * block_n)
        slots = sms * (2 if box_h * box_w == 64 else 1)
        # What is computed for nothing: pixels beyond the edge and multiprocessors idle in the last round.
        share = gain * used / (triton.cdiv(tiles, slots) * slots)
        if share > best:
            best, choice = share, (box_h, box_w, block_n, warps, 4)
    return choice


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as it is if its last axis is a multiple of 16 bytes, as the copy engine wants, else a copy."""
    lane = 16 // tensor.element_size()
    if tensor.shape[-1] % lane == 0 and tensor.data_ptr() % 16 == 0:
        return tensor
    wider = tensor.new_empty((*tensor.shape[:-1], triton.cdiv(tensor.shape[-1], lane) * lane))
    return wider[..., : tensor.shape[-1]].copy_(tensor)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1
) -> torch.Tensor:
    """Convolve x [batch, h, w, c] with weight [o, k, k, c], add bias [o]; returns a new [batch, h', w', o].

    Stride 1 only. float32 accumulation; no scratch memory, but channels of no multiple of 16 bytes are copied first.
    """
    if stride != 1:
        raise ValueError(f"stride 1 is what boxes can do, found {stride}")
    batch, height, width, in_channels = x.shape
    out_channels, kernel = weight.shape[:2]
    out_height, out_width = height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y_dtype = x.dtype if x.is_cuda else torch.float32
    y = torch.empty((batch, out_height, out_width, out_channels), dtype=y_dtype, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, weight = _aligned(x.contiguous()), _aligned(weight.contiguous())
    sms = _processors(x.device)
    size = x.element_size()
    box_h, box_w, block_n, warps, stages = _tile(batch, out_height, out_width, out_channels, sms, size)
    block_k = 32 if size == 4 else 64
    tiles_h, tiles_w = triton.cdiv(out_height, box_h), triton.cdiv(out_width, box_w)
    tiles = batch * tiles_h * tiles_w * triton.cdiv(out_channels, block_n)
    x_desc = TensorDescriptor(x, list(x.shape), list(x.stride()), [1, box_h, box_w, block_k])
    row, tap = weight.stride(0), weight.stride(2)
    taps = kernel * kernel
    w_desc = TensorDescriptor(weight, [taps, out_channels, in_channels], [tap, row, 1], [1, block_n, block_k])
    _conv_boxes[(min(tiles, sms * (2 if box_h * box_w == 64 else 1)),)](
        x_desc, w_desc, bias.contiguous(), y, in_channels, out_height, out_width, out_channels, padding,
        tiles_h, tiles_w, tiles, KERNEL=kernel, BOX_H=box_h, BOX_W=box_w, BLOCK_N=block_n, BLOCK_K=block_k,
        UPCAST=not x.is_cuda, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y.to(x.dtype)
