"""GroupNorm of few, huge groups: many CTAs a group, partial moments merged by Chan's rule, two launches."""

import torch
import triton
import triton.language as tl


@triton.jit
def _partial_moments(x_ptr, mean_ptr, spread_ptr, pixels, chunk, splits, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    begin = split * chunk
    end = tl.minimum(begin + chunk, pixels)
    base = x_ptr + plane * pixels
    mean = tl.sum(tl.zeros((BLOCK,), tl.float32), axis=0)
    spread = mean
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < end
        x = tl.load(base + cols, mask=inside, other=0.0).to(tl.float32)
        here = tl.minimum(end - start, BLOCK).to(tl.float32)
        before = (start - begin).to(tl.float32)
        tile_mean = tl.sum(x, axis=0) / here
        centred = tl.where(inside, x - tile_mean, 0.0)
        delta = tile_mean - mean
        spread += tl.sum(centred * centred, axis=0) + delta * delta * before * (here / (before + here))
        mean += delta * (here / (before + here))
    tl.store(mean_ptr + plane * splits + split, mean)
    tl.store(spread_ptr + plane * splits + split, spread)


@triton.jit
def _normalise(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, spread_ptr, pixels, chunk, splits, channels_per_group, num_channels,
    eps, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    # Backwards: what the first launch read last is still in L2.
    cols = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < pixels
    x = tl.load(x_ptr + plane * pixels + cols, mask=inside, other=0.0).to(tl.float32)
    # Every CTA merges the partial moments of its group again: a few hundred numbers from L2, cheaper than a launch.
    parts = channels_per_group * splits
    part = tl.arange(0, PARTS)
    first = (plane // channels_per_group) * parts
    used = part < parts
    share = (part % splits) * chunk
    count = tl.where(used, tl.minimum(pixels - share, chunk), 0).to(tl.float32)
    part_mean = tl.load(mean_ptr + first + part, mask=used, other=0.0)
    part_spread = tl.load(spread_ptr + first + part, mask=used, other=0.0)
    total = 1.0 * channels_per_group * pixels  # a size of 1 arrives as a plain number, without methods
    mean = tl.sum(part_mean * count, axis=0) / total
    delta = tl.where(used, part_mean - mean, 0.0)
    variance = tl.sum(part_spread + delta * delta * count, axis=0) / total
    rstd = 1.0 / tl.sqrt(variance + eps)
    channel = plane % num_channels
    weight = tl.load(weight_ptr + channel).to(tl.float32) * rstd
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    y = (x - mean) * weight + bias
    tl.store(y_ptr + plane * pixels + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5
) -> torch.Tensor:
    """Normalise x [batch_size, num_channels, height, width] (NCHW) over groups of channels; a new tensor like x.

    Scratch: two float32 for each (image, channel, split).
    """
    batch_size, num_channels, height, width = x.shape
    y = torch.empty((batch_size, num_channels, height, width), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x.contiguous()
    pixels, planes, per_group = height * width, batch_size * num_channels, num_channels // num_groups
    # About 2048 CTAs of at least one tile each; a split never crosses a channel, so no division by pixels is needed.
    # The largest tile that pads a channel by an eighth at most: 5184 pixels take 3 x 2048, not 2 x 4096.
    tile = min((4096, 2048, 1024), key=lambda size: (max(triton.cdiv(pixels, size) * size, pixels * 9 // 8), -size))
    tile = min(tile, triton.next_power_of_2(pixels))
    splits = min(triton.cdiv(pixels, tile), max(1, triton.cdiv(2048, planes)))
    chunk = triton.cdiv(triton.cdiv(pixels, splits), tile) * tile
    splits = triton.cdiv(pixels, chunk)
    moments = torch.empty((2, planes * splits), dtype=torch.float32, device=x.device)
    warps = min(8, max(1, tile // 512))
    _partial_moments[(planes, splits)](
        x, moments[0], moments[1], pixels, chunk, splits, BLOCK=tile, num_warps=warps
    )
    _normalise[(planes, triton.cdiv(pixels, tile))](
        x, weight, bias, y, moments[0], moments[1], pixels, chunk, splits, per_group, num_channels, eps,
        PARTS=triton.next_power_of_2(per_group * splits), BLOCK=tile, num_warps=warps,
    )  # fmt: skip
    return y
