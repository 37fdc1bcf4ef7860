"""ROI align, channels last: one program a bin, all samples of the bin at once, channels across the lanes."""

import torch
import triton
import triton.language as tl


@triton.jit
def _axis(low, high, cell, sub, size, POOLED: tl.constexpr, RATIO: tl.constexpr):
    """Return (index below, index above, weight above, inside) of the samples `sub` of bin `cell` along one axis."""
    step = (high - low) / POOLED
    at = low + cell * step + (sub.to(tl.float32) + 0.5) * step / RATIO
    inside = (at >= -1.0) & (at <= size)
    at = tl.minimum(tl.maximum(at, 0.0), size - 1.0)
    below = at.to(tl.int32)  # a floor, since nothing is negative here
    above = tl.minimum(below + 1, size - 1)
    return below, above, at - below.to(tl.float32), inside


@triton.jit
def _roi_align_bin(
    x_ptr,
    rois_ptr,
    y_ptr,
    height,
    width,
    channels,
    spatial_scale,
    POOLED: tl.constexpr,
    RATIO: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    roi = tl.program_id(0) // (POOLED * POOLED)
    cell = tl.program_id(0) % (POOLED * POOLED)
    box = rois_ptr + roi * 5
    image = tl.load(box).to(tl.int64)
    left = tl.load(box + 1) * spatial_scale - 0.5
    top = tl.load(box + 2) * spatial_scale - 0.5
    right = tl.load(box + 3) * spatial_scale - 0.5
    bottom = tl.load(box + 4) * spatial_scale - 0.5
    sample = tl.arange(0, SAMPLES)
    y0, y1, fy, in_y = _axis(top, bottom, cell // POOLED, sample // RATIO, height, POOLED, RATIO)
    x0, x1, fx, in_x = _axis(left, right, cell % POOLED, sample % RATIO, width, POOLED, RATIO)
    weight = tl.where(in_y & in_x & (sample < RATIO * RATIO), 1.0 / (RATIO * RATIO), 0.0)
    cs = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = cs < channels
    base = x_ptr + image * height * width * channels + cs[None, :]
    keep = (weight > 0)[:, None] & in_c[None, :]
    v00 = tl.load(base + ((y0 * width + x0) * channels)[:, None], mask=keep, other=0.0).to(tl.float32)
    v01 = tl.load(base + ((y0 * width + x1) * channels)[:, None], mask=keep, other=0.0).to(tl.float32)
    v10 = tl.load(base + ((y1 * width + x0) * channels)[:, None], mask=keep, other=0.0).to(tl.float32)
    v11 = tl.load(base + ((y1 * width + x1) * channels)[:, None], mask=keep, other=0.0).to(tl.float32)
    value = v00 * (weight * (1 - fy) * (1 - fx))[:, None] + v01 * (weight * (1 - fy) * fx)[:, None]
    value += v10 * (weight * fy * (1 - fx))[:, None] + v11 * (weight * fy * fx)[:, None]
    out = y_ptr + tl.program_id(0).to(tl.int64) * channels + cs
    tl.store(out, tl.sum(value, axis=0).to(y_ptr.dtype.element_ty), mask=in_c)


def run(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float = 1.0, pooled_size: int = 7, sampling_ratio: int = 2
) -> torch.Tensor:
    """Pool boxes rois [n, 5] of x [batch, h, w, c] to a new [n, pooled_size, pooled_size, c]."""
    _, height, width, channels = x.shape
    count = rois.shape[0]
    y = torch.empty((count, pooled_size, pooled_size, channels), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, rois = x.contiguous(), rois.contiguous()
    samples = triton.next_power_of_2(sampling_ratio * sampling_ratio)
    block_c = min(256, triton.next_power_of_2(channels))
    _roi_align_bin[(count * pooled_size * pooled_size, triton.cdiv(channels, block_c))](
        x,
        rois,
        y,
        height,
        width,
        channels,
        float(spatial_scale),
        POOLED=pooled_size,
        RATIO=sampling_ratio,
        SAMPLES=samples,
        BLOCK_C=block_c,
        num_warps=1,
    )
    return y
