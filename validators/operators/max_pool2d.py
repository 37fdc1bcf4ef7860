"""Maximum over square windows, channels last."""

import torch

from kb.validators.operators.draws import extremes
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


def reference(x: torch.Tensor, kernel_size: int = 2, stride: int = 2) -> tuple[torch.Tensor, ...]:
    """Return the window maxima in float64.

    Args:
        x: [batch, height, width, channels].
        kernel_size: Side of a window.
        stride: Step between windows; windows that leave the image are dropped (ceil_mode off, no padding).

    Returns:
        One tensor [batch, (height - kernel_size) // stride + 1, likewise for the width, channels]; NaN wins.
    """
    windows = x.to(torch.float64).unfold(1, kernel_size, stride).unfold(2, kernel_size, stride)
    return (windows.amax((-1, -2)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """kernel_size^2 - 1 comparisons an output; x read once and y written once."""
    inputs = axes["batch"] * axes["height"] * axes["width"] * axes["channels"]
    outputs = axes["batch"] * axes["out_height"] * axes["out_width"] * axes["channels"]
    return Cost(flops=(axes["kernel_size"] ** 2 - 1) * outputs, essential_bytes=(inputs + outputs) * itemsize(dtype))


def _draw(axes: Axes, dtype: str, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(axes["batch"], axes["height"], axes["width"], axes["channels"], generator=generator) - 2
    return x.to(DTYPES[dtype])


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Mostly negative values, so that a padding of zeros shows."""
    return _draw(axes, dtype, generator), axes["kernel_size"], axes["stride"]


def special(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with infinities and NaN among the values."""
    x = _draw(axes, dtype, generator)
    draw = torch.rand(x.shape, generator=generator)
    for value, low in ((float("nan"), 0.0), (float("inf"), 0.05), (float("-inf"), 0.1)):
        x[(draw >= low) & (draw < low + 0.05)] = value
    x[..., 0] = float("-inf")
    return x, axes["kernel_size"], axes["stride"]


def _tail(axes: Axes) -> tuple[int, int]:
    return axes["kernel_size"], axes["stride"]


def corners(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The corners of the format, as ``draws.extremes`` has them: subnormals must not be taken for zeros."""
    shape = (axes["batch"], axes["height"], axes["width"], axes["channels"])
    return extremes(shape, dtype, generator), *_tail(axes)


def ties(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Few different values, all negative in some channels: every window has several equal maxima."""
    shape = (axes["batch"], axes["height"], axes["width"], axes["channels"])
    shift = torch.randint(-4, 2, shape[-1:], generator=generator)
    return (torch.randint(0, 3, shape, generator=generator) + shift).to(DTYPES[dtype]), *_tail(axes)


def late_pixel(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rising along rows and columns, so that the maximum is always the last pixel of its window, or falling."""
    shape = (axes["batch"], axes["height"], axes["width"], axes["channels"])
    slope = 1.0 - 2 * torch.randint(0, 2, shape[-1:], generator=generator)
    ramp = torch.arange(shape[1])[:, None] + torch.arange(shape[2])[None, :]
    x = slope * ramp[None, :, :, None] + 0.25 * torch.rand(shape, generator=generator) - 40
    return x.to(DTYPES[dtype]), *_tail(axes)


def _axes(batch: int, size: tuple[int, int], channels: int, kernel: int = 2, stride: int = 2) -> dict[str, int]:
    height, width = ((s - kernel) // stride + 1 for s in size)
    sizes = {"batch": batch, "height": size[0], "width": size[1], "channels": channels}
    return sizes | {"kernel_size": kernel, "stride": stride, "out_height": height, "out_width": width}


SPEC = Operator(
    name="max_pool2d",
    summary="y[b, h, w, c] = max_rs x[b, h * stride + r, w * stride + s, c]",
    signature="max_pool2d(x, kernel_size=2, stride=2)",
    axes=("batch", "height", "width", "channels", "kernel_size", "stride", "out_height", "out_width"),
    inputs=(
        Buffer("x", ("batch", "height", "width", "channels"), doc="channels last (NHWC)"),
        Scalar("kernel_size", 2),
        Scalar("stride", 2),
    ),
    outputs=(Buffer("y", ("batch", "out_height", "out_width", "channels"), doc="channels last; NaN wins"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # A maximum selects one of its inputs: nothing is rounded, so the answer must be equal.
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0),
    cost=cost,
    laws={"normal": normal, "special": special, "corners": corners, "ties": ties, "late_pixel": late_pixel},
    workloads=(
        Workload(_axes(1, (2, 2), 1), "float32"),
        Workload(_axes(0, (4, 4), 8), "bfloat16", note="empty batch"),
        Workload(_axes(2, (5, 7), 13), "float32", note="last row and column are dropped"),
        Workload(_axes(1, (8, 6), 128), "bfloat16"),
        Workload(_axes(3, (9, 12), 40), "float16", "special"),
        Workload(_axes(1, (6, 10), 257), "bfloat16", "special"),
        Workload(_axes(1, (7, 8), 16, kernel=3, stride=2), "float32", note="overlapping windows"),
        Workload(_axes(1, (5, 6), 17), "float32", "corners"),
        Workload(_axes(2, (4, 7), 31), "float16", "corners"),
        Workload(_axes(1, (9, 5), 33), "bfloat16", "ties"),
        Workload(_axes(2, (6, 6), 15, kernel=3, stride=1), "float32", "late_pixel"),
        Workload(_axes(1, (3, 17), 129), "bfloat16", "late_pixel"),
        Workload(_axes(1, (72, 72), 1024), "bfloat16", use="target", note="SAM 3 neck, 72^2 to 36^2"),
        Workload(_axes(16, (72, 72), 1024), "bfloat16", use="target", note="SAM 3 neck, 16 frames"),
    ),
    source="torch.nn.functional.max_pool2d without padding or dilation",
    baselines=("max_pool2d", "max_pool2d_compiled"),
)
