"""Bilinear resizing of planar images, corners not aligned, no antialiasing."""

import torch

from kb.validators.operators.draws import integers as integers_of
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


def _matrix(size: int, out_size: int) -> torch.Tensor:
    """Return the interpolation matrix [out_size, size] in float64; every row has one or two weights that sum to 1."""
    centres = (torch.arange(out_size, dtype=torch.float64) + 0.5) * size / out_size - 0.5
    centres = centres.clamp(0, size - 1)
    # A hat function one pixel wide: 1 - distance, never below zero.
    return (1 - (centres[:, None] - torch.arange(size, dtype=torch.float64)[None, :]).abs()).clamp_min(0)


def reference(x: torch.Tensor, out_height: int, out_width: int) -> tuple[torch.Tensor, ...]:
    """Return the resized planes in float64.

    Args:
        x: [batch, channels, height, width].
        out_height: Rows of the result, at least 1.
        out_width: Columns of the result, at least 1.

    Returns:
        One tensor [batch, channels, out_height, out_width]. Output pixel i samples the input at
        (i + 0.5) * size / out_size - 0.5, clamped to the outermost pixel centres.
    """
    rows, cols = _matrix(x.shape[2], out_height), _matrix(x.shape[3], out_width)
    return (rows @ x.to(torch.float64) @ cols.T,)


def condition(x: torch.Tensor, out_height: int, out_width: int) -> tuple[torch.Tensor, ...]:
    """Return S: interpolated magnitude plus (height + width) times the local range, [b, c, out_height, out_width].

    A source coordinate computed in float32 is off by u * coordinate, and moves the value by that times the slope; the
    slope is bounded by the range of the 3 x 3 neighbourhood of the nearest input pixel.
    """
    wide = x.to(torch.float64)
    rows, cols = _matrix(x.shape[2], out_height), _matrix(x.shape[3], out_width)
    high = torch.nn.functional.max_pool2d(wide, 3, 1, 1)
    low = -torch.nn.functional.max_pool2d(-wide, 3, 1, 1)
    near = (high - low)[:, :, rows.argmax(1)][:, :, :, cols.argmax(1)]
    return (rows @ wide.abs() @ cols.T + (x.shape[2] + x.shape[3]) * near,)


def cost(axes: Axes, dtype: str) -> Cost:
    """Three blends of three operations an output; x read once and y written once."""
    planes = axes["batch"] * axes["channels"]
    inputs, outputs = planes * axes["height"] * axes["width"], planes * axes["out_height"] * axes["out_width"]
    return Cost(flops=9 * outputs, essential_bytes=(inputs + outputs) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Unit noise around an offset a plane, so that planes differ."""
    x = torch.randn(axes["batch"], axes["channels"], axes["height"], axes["width"], generator=generator)
    x = x + 4 * torch.randn(axes["batch"], axes["channels"], 1, 1, generator=generator)
    return x.to(DTYPES[dtype]), axes["out_height"], axes["out_width"]


def _finish(x: torch.Tensor, axes: Axes, dtype: str) -> Arguments:
    return x.to(DTYPES[dtype]), axes["out_height"], axes["out_width"]


def _shape(axes: Axes) -> tuple[int, int, int, int]:
    return axes["batch"], axes["channels"], axes["height"], axes["width"]


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Image rows of scale 2^-6 … 2^6 behind a nominal one, the right margin 16 times the rest."""
    return _finish(mixed(_shape(axes), generator, spread=6), axes, dtype)


def masks(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of binary masks: -20 and 20 in patches, so that every edge is as steep as can be."""
    shape = _shape(axes)
    rough = torch.randint(0, 2, (*shape[:2], -(-shape[2] // 3), -(-shape[3] // 3)), generator=generator)
    x = rough.repeat_interleave(3, 2).repeat_interleave(3, 3)[:, :, : shape[2], : shape[3]]
    return _finish(40.0 * x - 20 + torch.randn(*shape[:2], 1, 1, generator=generator), axes, dtype)


def large(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Values near a third of the largest: the blend stays finite, a sum before weighting does not in float16."""
    top = min(torch.finfo(DTYPES[dtype]).max / 3, 2.0**100)
    x = top * (0.8 + 0.2 * torch.rand(_shape(axes), generator=generator))
    sign = 1 - 2 * torch.randint(0, 2, (axes["batch"], axes["channels"], 1, 1), generator=generator)
    return _finish(x * sign, axes, dtype)


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers; asked for where the size stays or doubles, so that weights are quarters and all is exact."""
    return _finish(integers_of(_shape(axes), generator), axes, dtype)


def _axes(batch: int, channels: int, size: tuple[int, int], out: tuple[int, int]) -> dict[str, int]:
    sizes = {"batch": batch, "channels": channels, "height": size[0], "width": size[1]}
    return sizes | {"out_height": out[0], "out_width": out[1]}


SPEC = Operator(
    name="resize_bilinear",
    summary="y = bilinear samples of x at (i + 0.5) * size / out_size - 0.5, clamped; align_corners=False",
    signature="resize_bilinear(x, out_height, out_width)",
    axes=("batch", "channels", "height", "width", "out_height", "out_width"),
    inputs=(
        Buffer("x", ("batch", "channels", "height", "width"), doc="planar (NCHW)"),
        Scalar("out_height"),
        Scalar("out_width"),
    ),
    outputs=(Buffer("y", ("batch", "channels", "out_height", "out_width"), doc="planar (NCHW)"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
    cost=cost,
    laws={"normal": normal, "mixed_scale": mixed_scale, "masks": masks, "large": large, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(_axes(1, 1, (1, 1), (1, 1)), "float32"),
        Workload(_axes(0, 2, (4, 4), (8, 8)), "bfloat16", note="empty batch"),
        Workload(_axes(1, 2, (1, 5), (3, 11)), "float32", note="one row"),
        Workload(_axes(2, 1, (7, 13), (19, 29)), "float32"),
        Workload(_axes(1, 3, (9, 8), (36, 30)), "bfloat16"),
        Workload(_axes(1, 2, (31, 17), (12, 5)), "float16", note="smaller"),
        Workload(_axes(1, 1, (6, 6), (6, 6)), "float32", note="same size: a copy"),
        Workload(_axes(2, 2, (5, 300), (9, 1100)), "bfloat16", note="more columns than a block"),
        Workload(_axes(1, 2, (9, 17), (15, 31)), "float32", "mixed_scale"),
        Workload(_axes(2, 1, (7, 33), (11, 17)), "bfloat16", "mixed_scale"),
        Workload(_axes(1, 3, (8, 9), (31, 33)), "float16", "masks"),
        Workload(_axes(1, 2, (5, 7), (9, 16)), "float16", "large"),
        Workload(_axes(2, 2, (9, 15), (18, 30)), "float32", "integers"),
        Workload(_axes(1, 2, (17, 8), (34, 16)), "bfloat16", "integers"),
        Workload(_axes(1, 16, (288, 288), (1080, 1920)), "bfloat16", use="target", note="SAM 3.1 masks to video size"),
        Workload(_axes(1, 16, (288, 288), (1152, 1152)), "bfloat16", use="target", note="SAM 3.1 memory encoder"),
        Workload(_axes(1, 3, (1080, 1920), (1008, 1008)), "float32", use="target", note="SAM 3.1 input frame"),
    ),
    source="torch.nn.functional.interpolate(mode='bilinear', align_corners=False, antialias=False)",
    baselines=("interpolate",),
)
