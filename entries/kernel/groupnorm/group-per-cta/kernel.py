"""GroupNorm, one CTA a group: the group stays in registers, or is read twice if it is too large for them."""

import torch
import triton
import triton.language as tl


@triton.jit
def _groupnorm_group(
    x_ptr, weight_ptr, bias_ptr, y_ptr, num_groups, eps, SIZE: tl.constexpr, PIXELS: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    first_channel = (group % num_groups) * (SIZE // PIXELS)
    base = group * SIZE
    cols = tl.arange(0, BLOCK)
    inside = cols < SIZE
    x = tl.load(x_ptr + base + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / SIZE
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / SIZE + eps)
    channel = first_channel + cols // PIXELS
    weight = tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + base + cols, (centred * rstd * weight + bias).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _groupnorm_group_twice(
    x_ptr, weight_ptr, bias_ptr, y_ptr, num_groups, eps, SIZE: tl.constexpr, PIXELS: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    first_channel = (group % num_groups) * (SIZE // PIXELS)
    base = group * SIZE
    mean = tl.sum(tl.zeros((BLOCK,), tl.float32), axis=0)
    spread = mean
    for start in range(0, SIZE, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + cols, mask=cols < SIZE, other=0.0).to(tl.float32)
        # Moments of the tile about its own mean, merged by Chan's rule: no E[x^2] - mean^2 anywhere.
        here = tl.minimum(SIZE - start, BLOCK).to(tl.float32)
        tile_mean = tl.sum(x, axis=0) / here
        centred = tl.where(cols < SIZE, x - tile_mean, 0.0)
        delta = tile_mean - mean
        weight_new = here / (start + here)
        spread += tl.sum(centred * centred, axis=0) + delta * delta * start * weight_new
        mean += delta * weight_new
    rstd = 1.0 / tl.sqrt(spread / SIZE + eps)
    for start in range(0, SIZE, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < SIZE
        x = tl.load(x_ptr + base + cols, mask=inside, other=0.0).to(tl.float32)
        channel = first_channel + cols // PIXELS
        weight = tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=inside, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + base + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5
) -> torch.Tensor:
    """Normalise x [batch_size, num_channels, height, width] (NCHW) over groups of channels; a new tensor like x."""
    batch_size, num_channels, height, width = x.shape
    y = torch.empty((batch_size, num_channels, height, width), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x.contiguous()
    pixels = height * width
    size = (num_channels // num_groups) * pixels
    block = triton.next_power_of_2(size)
    grid = (batch_size * num_groups,)
    if block <= 16384:
        warps = min(16, max(1, block // 512))
        _groupnorm_group[grid](
            x, weight, bias, y, num_groups, eps, SIZE=size, PIXELS=pixels, BLOCK=block, num_warps=warps
        )
    else:
        _groupnorm_group_twice[grid](
            x, weight, bias, y, num_groups, eps, SIZE=size, PIXELS=pixels, BLOCK=8192, num_warps=16
        )
    return y
