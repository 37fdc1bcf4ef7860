"""Two-dimensional convolution with bias, channels last."""

import torch
import torch.nn.functional as f

from kb.validators.operators.draws import mixed, signs
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


def _accumulate(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    """Sum the taps one by one in float64; x [b, h, w, c], weight [o, r, s, c]."""
    kernel = weight.shape[1]
    wide = f.pad(x.to(torch.float64), (0, 0, padding, padding, padding, padding))
    rows, cols = wide.shape[1] - kernel + 1, wide.shape[2] - kernel + 1
    out = torch.zeros((), dtype=torch.float64)
    for r in range(kernel):
        for s in range(kernel):
            window = wide[:, r : r + rows : stride, s : s + cols : stride]
            out = out + torch.einsum("bhwc,oc->bhwo", window, weight[:, r, s].to(torch.float64))
    return out


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return the convolution in float64.

    Args:
        x: [batch, height, width, in_channels].
        weight: [out_channels, kernel_size, kernel_size, in_channels].
        bias: [out_channels].
        stride: Step in both directions.
        padding: Zeros on each side.

    Returns:
        One tensor [batch, out_height, out_width, out_channels].
    """
    return (_accumulate(x, weight, stride, padding) + bias.to(torch.float64),)


def condition(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 1, padding: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squared products + bias^2)."""
    squares = _accumulate(x.to(torch.float64).square(), weight.to(torch.float64).square(), stride, padding)
    return ((squares + bias.to(torch.float64).square()).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * output elements * kernel_size^2 * in_channels operations (padding counted); every tensor moved once."""
    outputs = axes["batch"] * axes["out_height"] * axes["out_width"] * axes["out_channels"]
    taps = axes["kernel_size"] ** 2 * axes["in_channels"]
    inputs = axes["batch"] * axes["height"] * axes["width"] * axes["in_channels"]
    elements = inputs + outputs + axes["out_channels"] * (taps + 1)
    return Cost(flops=2 * outputs * taps, essential_bytes=elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Activations of mixed scale a channel, so that a swapped channel shows, weights of unit gain, unit bias."""
    kernel, channels = axes["kernel_size"], axes["in_channels"]
    scale = torch.exp2(torch.randint(-2, 3, (channels,), generator=generator).to(torch.float32))
    x = torch.randn(axes["batch"], axes["height"], axes["width"], channels, generator=generator) * scale
    weight = torch.randn(axes["out_channels"], kernel, kernel, channels, generator=generator)
    weight = weight / (kernel * kernel * channels) ** 0.5
    bias = torch.randn(axes["out_channels"], generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["stride"], axes["padding"]


def _shapes(axes: Axes) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of x, weight and bias."""
    kernel = axes["kernel_size"]
    return (
        (axes["batch"], axes["height"], axes["width"], axes["in_channels"]),
        (axes["out_channels"], kernel, kernel, axes["in_channels"]),
        (axes["out_channels"],),
    )


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels of scale 2^-6 … 2^6 behind a nominal one, the last channels 16 times the rest."""
    image, taps, width = _shapes(axes)
    x, weight = mixed(image, generator, spread=6), torch.randn(taps, generator=generator) / 4
    return (
        x.to(DTYPES[dtype]),
        weight.to(DTYPES[dtype]),
        torch.randn(width, generator=generator).to(DTYPES[dtype]),
        axes["stride"],
        axes["padding"],
    )


def sparse(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Single pixels in an image of zeros, the last corner among them: most of the answer is the bias."""
    image, taps, width = _shapes(axes)
    keep = torch.rand(image[:3], generator=generator) < 0.1
    keep[:, -1:, -1:] = True
    x = torch.randn(image, generator=generator) * keep[..., None]
    weight, bias = torch.randn(taps, generator=generator), torch.randn(width, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["stride"], axes["padding"]


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels around an offset of 16, weights of both signs: large terms, small sums, edges that stand out."""
    image, taps, width = _shapes(axes)
    x, weight = 16 + torch.randn(image, generator=generator), torch.randn(taps, generator=generator)
    weight = weight - weight.mean((1, 2, 3), keepdim=True)
    return (
        x.to(DTYPES[dtype]),
        weight.to(DTYPES[dtype]),
        torch.randn(width, generator=generator).to(DTYPES[dtype]),
        axes["stride"],
        axes["padding"],
    )


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    x, weight, bias = (signs(shape, generator).to(DTYPES[dtype]) for shape in _shapes(axes))
    return x, weight, bias, axes["stride"], axes["padding"]


def _axes(
    batch: int, size: tuple[int, int], channels: tuple[int, int], kernel: int = 3, stride: int = 1, padding: int = 1
) -> dict[str, int]:
    height, width = ((s + 2 * padding - kernel) // stride + 1 for s in size)
    sizes = {"batch": batch, "height": size[0], "width": size[1], "in_channels": channels[0]}
    sizes |= {"out_channels": channels[1], "kernel_size": kernel, "stride": stride, "padding": padding}
    return sizes | {"out_height": height, "out_width": width}


SPEC = Operator(
    name="conv2d",
    summary="y[b, h, w, o] = bias[o] + sum_rsc x[b, h*stride+r-padding, w*stride+s-padding, c] * weight[o, r, s, c]",
    signature="conv2d(x, weight, bias, stride=1, padding=1)",
    axes=(
        "batch",
        "height",
        "width",
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "out_height",
        "out_width",
    ),
    inputs=(
        Buffer("x", ("batch", "height", "width", "in_channels"), doc="channels last (NHWC)"),
        Buffer(
            "weight",
            ("out_channels", "kernel_size", "kernel_size", "in_channels"),
            static=True,
            doc="the memory of a torch weight in channels_last format: weight.permute(0, 2, 3, 1)",
        ),
        Buffer("bias", ("out_channels",), static=True),
        Scalar("stride", 1),
        Scalar("padding", 1, "zeros on each side"),
    ),
    outputs=(Buffer("y", ("batch", "out_height", "out_width", "out_channels"), doc="channels last (NHWC)"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "mixed_scale": mixed_scale,
        "sparse": sparse,
        "cancelling": cancelling,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        Workload(_axes(1, (1, 1), (1, 1)), "float32"),
        Workload(_axes(0, (4, 4), (16, 16)), "bfloat16", note="empty batch"),
        Workload(_axes(2, (5, 7), (3, 5)), "float32"),
        Workload(_axes(1, (9, 11), (32, 40)), "bfloat16"),
        Workload(_axes(1, (13, 10), (67, 24), stride=2), "float16", note="stride 2, odd height"),
        Workload(_axes(2, (6, 5), (48, 33), kernel=1, padding=0), "bfloat16", note="1 x 1"),
        Workload(_axes(1, (8, 8), (16, 16), kernel=5, padding=2), "float32"),
        Workload(_axes(1, (7, 9), (64, 130), padding=0), "bfloat16", note="no padding"),
        Workload(_axes(2, (5, 6), (9, 17)), "float32", "mixed_scale"),
        Workload(_axes(1, (7, 5), (33, 15)), "bfloat16", "mixed_scale"),
        Workload(_axes(1, (9, 8), (5, 31)), "float16", "sparse"),
        Workload(_axes(1, (6, 7), (17, 9), stride=2), "bfloat16", "sparse"),
        Workload(_axes(1, (5, 5), (15, 17)), "float32", "cancelling"),
        Workload(_axes(2, (4, 7), (16, 31)), "float32", "integers"),
        Workload(_axes(1, (6, 5), (31, 33)), "bfloat16", "integers"),
        Workload(_axes(1, (9, 7), (17, 8), kernel=3, stride=2), "float16", "integers"),
        Workload(_axes(1, (288, 288), (256, 256)), "bfloat16", use="target", note="SAM 3.1 neck and mask head, 288^2"),
        Workload(_axes(1, (144, 144), (256, 256)), "bfloat16", use="target", note="SAM 3.1 neck, 144^2"),
        Workload(_axes(1, (72, 72), (256, 256)), "bfloat16", use="target", note="SAM 3.1 neck, 72^2"),
        Workload(_axes(1, (1152, 1152), (32, 16), stride=2), "bfloat16", use="target", note="SAM 3.1 memory encoder"),
    ),
    source="torch.nn.functional.conv2d (cross-correlation, no dilation, one group)",
    baselines=("conv2d",),
    rivals=("cuDNN in 16 bits, which rounds the sum before the bias",),
)
