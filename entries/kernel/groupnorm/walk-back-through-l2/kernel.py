"""GroupNorm of few, huge groups: resident CTAs read their piece forwards, then walk back over it through L2."""

import torch
import triton
import triton.language as tl


@triton.jit
def _piece_moments(x_ptr, parts_ptr, pixels, chunk, splits, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        # The second launch may take its places now; it waits for this one's results by itself.
        tl.extra.cuda.gdc_launch_dependents()
    piece = tl.program_id(0)
    plane = piece // splits
    begin = (piece - plane * splits) * chunk
    end = tl.minimum(begin + chunk, pixels)
    base = x_ptr + plane.to(tl.int64) * pixels
    cols = tl.arange(0, BLOCK)
    ahead = tl.load(base + begin + cols, mask=begin + cols < end, other=0.0, eviction_policy="evict_last")
    # The shift is the mean of a part of the sum, so that what squares - sum^2 / n loses is bounded by the number of tiles.
    shift = tl.sum(ahead.to(tl.float32), axis=0) / tl.minimum(end - begin, BLOCK).to(tl.float32)
    lanes = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, BLOCK):
        x = ahead.to(tl.float32)
        later = start + BLOCK + cols
        ahead = tl.load(base + later, mask=later < end, other=0.0, eviction_policy="evict_last")
        away = tl.where(start + cols < end, x - shift, 0.0)
        lanes += away
        squares += away * away
    count = (end - begin).to(tl.float32)
    total = tl.sum(lanes, axis=0)
    tl.store(parts_ptr + 2 * piece, shift + total / count)
    tl.store(parts_ptr + 2 * piece + 1, tl.sum(squares, axis=0) - total * (total / count))


@triton.jit
def _walk_back(
    x_ptr, weight_ptr, bias_ptr, y_ptr, parts_ptr, pixels, chunk, splits, channels_per_group, num_channels, eps,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    plane = piece // splits
    begin = (piece - plane * splits) * chunk
    end = tl.minimum(begin + chunk, pixels)
    base = plane.to(tl.int64) * pixels
    cols = tl.arange(0, BLOCK)
    tiles = tl.cdiv(end - begin, BLOCK)
    start = begin + (tiles - 1) * BLOCK
    ahead = tl.load(x_ptr + base + start + cols, mask=start + cols < end, other=0.0, eviction_policy="evict_first")
    channel = plane % num_channels
    weight = tl.load(weight_ptr + channel).to(tl.float32)
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    # Chan's rule, once a CTA: the pieces of a group are a few hundred pairs in L2.
    parts = channels_per_group * splits
    part = tl.arange(0, PARTS)
    used = part < parts
    source = parts_ptr + 2 * ((plane // channels_per_group) * parts + part)
    count = tl.where(used, tl.minimum(pixels - (part % splits) * chunk, chunk), 0).to(tl.float32)
    means = tl.load(source, mask=used, other=0.0)
    spreads = tl.load(source + 1, mask=used, other=0.0)
    size = 1.0 * channels_per_group * pixels  # a size of 1 arrives as a plain number, without methods
    mean = tl.sum(means * count, axis=0) / size
    delta = tl.where(used, means - mean, 0.0)
    # A constant group may come out below zero by a rounding.
    variance = tl.maximum(tl.sum(spreads + delta * delta * count, axis=0) / size, 0.0, tl.PropagateNan.ALL)
    weight *= 1.0 / tl.sqrt(variance + eps)
    for done in range(0, tiles):
        x = ahead.to(tl.float32)
        # The last tile comes first; all earlier ones are whole, and before the first nothing is read.
        more = tl.where(done + 1 < tiles, BLOCK, 0)
        ahead = tl.load(
            x_ptr + base + start - BLOCK + cols, mask=cols < more, other=0.0, eviction_policy="evict_first"
        )
        y = (x - mean) * weight + bias
        tl.store(
            y_ptr + base + start + cols, y.to(y_ptr.dtype.element_ty), mask=start + cols < end,
            eviction_policy="evict_first",
        )  # fmt: skip
        start -= BLOCK


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
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    # As many pieces as eight CTAs an SM, all resident at once; none crosses a channel, all begin on 16 elements.
    splits = min(max(1, 8 * sms // planes), triton.cdiv(pixels, 1024))
    chunk = triton.cdiv(triton.cdiv(pixels, splits), 16) * 16
    splits = triton.cdiv(pixels, chunk)
    block = min(2048 if x.element_size() == 2 else 1024, triton.next_power_of_2(chunk))
    parts = torch.empty((planes * splits, 2), dtype=torch.float32, device=x.device)
    early = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9
    _piece_moments[(planes * splits,)](x, parts, pixels, chunk, splits, BLOCK=block, EARLY=early, num_warps=4)
    _walk_back[(planes * splits,)](
        x, weight, bias, y, parts, pixels, chunk, splits, per_group, num_channels, eps,
        PARTS=triton.next_power_of_2(per_group * splits), BLOCK=block, EARLY=early, num_warps=4,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return y
