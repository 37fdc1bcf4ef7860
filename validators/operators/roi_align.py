"""ROI align: bilinear samples of a feature map, averaged in a grid of bins for every box."""

from typing import cast

import torch

from kb.validators.operators.draws import mixed
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Workload,
    itemsize,
)


def _positions(low: float, high: float, pooled: int, ratio: int) -> torch.Tensor:
    """Return the sample coordinates [pooled * ratio] of one side of a box; low and high in pixels of the map."""
    step = (high - low) / (pooled * ratio)
    return low + (torch.arange(pooled * ratio, dtype=torch.float64) + 0.5) * step


def _weights(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Return sample weights [samples, size]: a hat one pixel wide at the clamped position, none beyond [-1, size]."""
    clamped = positions.clamp(0, size - 1)
    hat = (1 - (clamped[:, None] - torch.arange(size, dtype=torch.float64)[None, :]).abs()).clamp_min(0)
    return hat * ((positions >= -1) & (positions <= size)).to(torch.float64)[:, None]


def _pool(x: torch.Tensor, rois: torch.Tensor, spatial_scale: float, pooled_size: int, ratio: int) -> torch.Tensor:
    """Average the samples of every bin, in float64."""
    out = torch.zeros(rois.shape[0], pooled_size, pooled_size, x.shape[3], dtype=torch.float64)
    for index, (image, left, top, right, bottom) in enumerate(rois.to(torch.float64).tolist()):
        low_x, high_x, low_y, high_y = (v * spatial_scale - 0.5 for v in (left, right, top, bottom))
        rows = _weights(_positions(low_y, high_y, pooled_size, ratio), x.shape[1])
        cols = _weights(_positions(low_x, high_x, pooled_size, ratio), x.shape[2])
        rows = rows.reshape(pooled_size, ratio, -1).mean(1)
        cols = cols.reshape(pooled_size, ratio, -1).mean(1)
        out[index] = torch.einsum("ph,qw,hwc->pqc", rows, cols, x[int(image)].to(torch.float64))
    return out


def reference(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float = 1.0, pooled_size: int = 7, sampling_ratio: int = 2
) -> tuple[torch.Tensor, ...]:
    """Return the pooled boxes in float64.

    Args:
        x: [batch, height, width, channels].
        rois: float32 [num_rois, 5]: image index, then left, top, right, bottom in units of 1 / spatial_scale pixels.
        spatial_scale: Pixels of the map per unit of the boxes.
        pooled_size: Bins a side.
        sampling_ratio: Samples a side of a bin, at least 1.

    Returns:
        One tensor [num_rois, pooled_size, pooled_size, channels]. ``aligned=True``: boxes are shifted by half a pixel
        and not enlarged to one pixel. A sample beyond [-1, size] counts as zero, between there and the outermost pixel
        centres it takes the outermost value.
    """
    return (_pool(x, rois, spatial_scale, pooled_size, sampling_ratio),)


def condition(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float = 1.0, pooled_size: int = 7, sampling_ratio: int = 2
) -> tuple[torch.Tensor, ...]:
    """Return S: pooled magnitude plus the map's size times the channel's largest value (coordinates in float32)."""
    wide = x.to(torch.float64).abs()
    if rois.shape[0] == 0:
        return (torch.zeros(0, pooled_size, pooled_size, x.shape[3], dtype=torch.float64),)
    return (
        _pool(wide, rois, spatial_scale, pooled_size, sampling_ratio)
        + max(x.shape[1:3]) * wide.amax((1, 2))[rois[:, 0].to(torch.int64)][:, None, None, :],
    )


def cost(axes: Axes, dtype: str) -> Cost:
    """Eight operations a sample; the map (or what the bins touch, if less), the boxes and the bins moved once."""
    bins = axes["num_rois"] * axes["pooled_size"] ** 2 * axes["channels"]
    samples = bins * axes["sampling_ratio"] ** 2
    image = axes["batch"] * axes["height"] * axes["width"] * axes["channels"]
    moved = (min(image, 4 * samples) + bins) * itemsize(dtype) + 20 * axes["num_rois"]
    return Cost(flops=8 * samples, essential_bytes=moved)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes inside and across the border, placed so that no sample comes near the jumps at -1 and size."""
    return _drawn(axes, dtype, generator, scale=0.5)


def _drawn(axes: Axes, dtype: str, generator: torch.Generator, *, scale: float) -> Arguments:
    count, size = axes["num_rois"], (axes["width"], axes["height"])
    x = torch.randn(axes["batch"], axes["height"], axes["width"], axes["channels"], generator=generator)
    pooled, ratio = axes["pooled_size"], axes["sampling_ratio"]
    rois = torch.zeros(count, 5)
    rois[:, 0] = torch.randint(0, max(axes["batch"], 1), (count,), generator=generator)
    for side in (0, 1):
        most = max(2, 4 * size[side] // pooled)
        steps = torch.randint(1, most + 1, (count,), generator=generator).to(torch.float32)
        low = torch.randint(-24, 8 * size[side], (count,), generator=generator).to(torch.float32) / 8
        # Samples lie at multiples of 1 / (16 * ratio) from the corner; a quarter of that keeps them off integers.
        low = low + 1 / (64 * ratio)
        rois[:, 1 + side] = low / scale
        rois[:, 3 + side] = (low + steps * pooled / 8) / scale
    return x.to(DTYPES[dtype]), rois, scale, pooled, ratio


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Map rows of scale 2^-4 … 2^4 behind a nominal one, the last channels 4 times the rest; boxes of three scales."""
    scale = 2.0 ** -int(torch.randint(0, 3, (1,), generator=generator))
    _, *rest = _drawn(axes, dtype, generator, scale=scale)
    shape = (axes["batch"], axes["height"], axes["width"], axes["channels"])
    return mixed(shape, generator, spread=4, tail=2).to(DTYPES[dtype]), *rest


def outside(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes beside the map, in whole or in part, or far larger than it: samples beyond the border count as zero."""
    x, rois, scale, pooled, ratio = cast(
        tuple[torch.Tensor, torch.Tensor, float, int, int], normal(axes, dtype, generator)
    )
    size = (axes["width"], axes["height"])
    for index in range(axes["num_rois"]):
        kind = index % 3
        for side in (0, 1):
            place = 1 + side
            extent = float(rois[index, 3 + side] - rois[index, place])
            shift = 8 * size[side] / scale
            if kind == 0:  # wholly outside, left or right
                rois[index, place] += shift if torch.rand(1, generator=generator) < 0.5 else -shift - extent
            elif kind == 1:  # eight times the map: most bins see nothing, some a little
                extent = 8 * pooled * (size[side] // pooled + 1) / scale
                rois[index, place] -= 4 * size[side] / scale
            rois[index, 3 + side] = rois[index, place] + extent
    return x, rois, scale, pooled, ratio


def plateaus(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A map of constant channels with one bright pixel each: bins are the constant, or tell where the pixel lies."""
    _, *rest = normal(axes, dtype, generator)
    batch, height, width, channels = (axes[name] for name in ("batch", "height", "width", "channels"))
    x = torch.randn(1, 1, 1, channels, generator=generator).expand(batch, height, width, channels).clone()
    at = torch.randint(0, height * width, (batch, channels), generator=generator)
    x.view(batch, -1, channels).scatter_(1, at[:, None, :], 8.0)
    return x.to(DTYPES[dtype]), *rest


def _axes(
    batch: int, size: tuple[int, int], channels: int, rois: int, pooled: int = 7, ratio: int = 2
) -> dict[str, int]:
    sizes = {"batch": batch, "height": size[0], "width": size[1], "channels": channels, "num_rois": rois}
    return sizes | {"pooled_size": pooled, "sampling_ratio": ratio}


SPEC = Operator(
    name="roi_align",
    summary="y[n, p, q, c] = mean of sampling_ratio^2 bilinear samples of x in bin (p, q) of box n; aligned",
    signature="roi_align(x, rois, spatial_scale=1.0, pooled_size=7, sampling_ratio=2)",
    axes=("batch", "height", "width", "channels", "num_rois", "pooled_size", "sampling_ratio"),
    inputs=(
        Buffer("x", ("batch", "height", "width", "channels"), doc="channels last (NHWC)"),
        Buffer("rois", ("num_rois", "5"), dtype="float32", doc="image index, left, top, right, bottom"),
        Scalar("spatial_scale", 1.0),
        Scalar("pooled_size", 7),
        Scalar("sampling_ratio", 2, "at least 1; the adaptive choice 0 is not part of the contract"),
    ),
    outputs=(Buffer("y", ("num_rois", "pooled_size", "pooled_size", "channels"), doc="channels last"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
    cost=cost,
    laws={"normal": normal, "mixed_scale": mixed_scale, "outside": outside, "plateaus": plateaus},
    workloads=(
        Workload(_axes(1, (1, 1), 1, 1, pooled=1), "float32"),
        Workload(_axes(1, (6, 6), 16, 0), "bfloat16", note="no boxes"),
        Workload(_axes(2, (9, 7), 13, 2), "float32"),
        Workload(_axes(1, (12, 12), 64, 4, pooled=2), "bfloat16"),
        Workload(_axes(3, (5, 17), 40, 3, pooled=3), "float16"),
        Workload(_axes(1, (8, 8), 33, 2, pooled=3, ratio=3), "float32"),
        Workload(_axes(2, (10, 6), 24, 2, pooled=4, ratio=1), "bfloat16"),
        Workload(_axes(1, (9, 17), 15, 3, pooled=3), "float32", "mixed_scale"),
        Workload(_axes(2, (7, 5), 33, 2, pooled=2), "bfloat16", "mixed_scale"),
        Workload(_axes(2, (5, 7), 17, 6, pooled=3), "float32", "outside"),
        Workload(_axes(1, (9, 6), 31, 5, pooled=2), "bfloat16", "outside"),
        Workload(_axes(2, (6, 9), 17, 3, pooled=3), "float16", "plateaus"),
        Workload(_axes(1, (72, 72), 256, 16), "bfloat16", use="target", note="SAM 3.1 box prompts, batch 16"),
        Workload(_axes(1, (72, 72), 256, 512), "float16", use="target", note="many boxes"),
    ),
    source="He et al., Mask R-CNN, 2017; torchvision.ops.roi_align(aligned=True), whose maps are NCHW",
    baselines=("roi_align", "hat_weights_compiled", "hat_weights"),
)
