"""Transposed convolution with bias, channels last, without padding."""

import torch

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


def _scatter(x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    """Add every input pixel, times the kernel, into the output, in float64; x [b, h, w, c], weight [c, r, s, o]."""
    batch, height, width, _ = x.shape
    kernel = weight.shape[1]
    shape = (batch, (height - 1) * stride + kernel, (width - 1) * stride + kernel, weight.shape[3])
    out = torch.zeros(shape, dtype=torch.float64, device=x.device)
    for r in range(kernel):
        for s in range(kernel):
            rows = slice(r, r + (height - 1) * stride + 1, stride)
            cols = slice(s, s + (width - 1) * stride + 1, stride)
            out[:, rows, cols] += x.to(torch.float64) @ weight[:, r, s].to(torch.float64)
    return out


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 2) -> tuple[torch.Tensor, ...]:
    """Return the transposed convolution in float64.

    Args:
        x: [batch, height, width, in_channels].
        weight: [in_channels, kernel_size, kernel_size, out_channels].
        bias: [out_channels].
        stride: Distance between the outputs of neighbouring input pixels.

    Returns:
        One tensor [batch, (height - 1) * stride + kernel_size, (width - 1) * stride + kernel_size, out_channels].
    """
    return (_scatter(x, weight, stride) + bias.to(torch.float64),)


def condition(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int = 2) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squared products + bias^2)."""
    squares = _scatter(x.to(torch.float64).square(), weight.to(torch.float64).square(), stride)
    return ((squares + bias.to(torch.float64).square()).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * input elements * kernel_size^2 * out_channels operations; every tensor moved once."""
    inputs = axes["batch"] * axes["height"] * axes["width"] * axes["in_channels"]
    outputs = axes["batch"] * axes["out_height"] * axes["out_width"] * axes["out_channels"]
    taps = axes["kernel_size"] ** 2 * axes["out_channels"]
    elements = inputs + outputs + axes["in_channels"] * taps + axes["out_channels"]
    return Cost(flops=2 * inputs * taps, essential_bytes=elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Activations of mixed scale a channel, weights of unit gain, unit bias."""
    kernel, channels = axes["kernel_size"], axes["in_channels"]
    scale = torch.exp2(torch.randint(-2, 3, (channels,), generator=generator).to(torch.float32))
    x = torch.randn(axes["batch"], axes["height"], axes["width"], channels, generator=generator) * scale
    weight = torch.randn(channels, kernel, kernel, axes["out_channels"], generator=generator) / channels**0.5
    bias = torch.randn(axes["out_channels"], generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["stride"]


def _shapes(axes: Axes) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of x, weight and bias."""
    kernel = axes["kernel_size"]
    return (
        (axes["batch"], axes["height"], axes["width"], axes["in_channels"]),
        (axes["in_channels"], kernel, kernel, axes["out_channels"]),
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
    )


def sparse(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Single pixels in an image of zeros, the last corner among them: most of the answer is the bias."""
    image, taps, width = _shapes(axes)
    keep = torch.rand(image[:3], generator=generator) < 0.1
    keep[:, -1:, -1:] = True
    x = torch.randn(image, generator=generator) * keep[..., None]
    weight, bias = torch.randn(taps, generator=generator), torch.randn(width, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["stride"]


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels around an offset of 16, weights of both signs: large terms, small sums, edges that stand out."""
    image, taps, width = _shapes(axes)
    x, weight = 16 + torch.randn(image, generator=generator), torch.randn(taps, generator=generator)
    weight = weight - weight.mean(0, keepdim=True)
    return (
        x.to(DTYPES[dtype]),
        weight.to(DTYPES[dtype]),
        torch.randn(width, generator=generator).to(DTYPES[dtype]),
        axes["stride"],
    )


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    x, weight, bias = (signs(shape, generator).to(DTYPES[dtype]) for shape in _shapes(axes))
    return x, weight, bias, axes["stride"]


def _axes(
    batch: int, size: tuple[int, int], channels: tuple[int, int], kernel: int = 2, stride: int = 2
) -> dict[str, int]:
    height, width = ((s - 1) * stride + kernel for s in size)
    sizes = {"batch": batch, "height": size[0], "width": size[1], "in_channels": channels[0]}
    sizes |= {"out_channels": channels[1], "kernel_size": kernel, "stride": stride}
    return sizes | {"out_height": height, "out_width": width}


SPEC = Operator(
    name="conv_transpose2d",
    summary="y[b, h * stride + r, w * stride + s, o] += sum_c x[b, h, w, c] * weight[c, r, s, o]; y starts at bias[o]",
    signature="conv_transpose2d(x, weight, bias, stride=2)",
    axes=(
        "batch",
        "height",
        "width",
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "out_height",
        "out_width",
    ),
    inputs=(
        Buffer("x", ("batch", "height", "width", "in_channels"), doc="channels last (NHWC)"),
        Buffer(
            "weight",
            ("in_channels", "kernel_size", "kernel_size", "out_channels"),
            static=True,
            doc="the memory of a torch weight in channels_last format: weight.permute(0, 2, 3, 1)",
        ),
        Buffer("bias", ("out_channels",), static=True),
        Scalar("stride", 2),
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
        Workload(_axes(0, (3, 3), (16, 16)), "bfloat16", note="empty batch"),
        Workload(_axes(2, (5, 7), (19, 13)), "float32"),
        Workload(_axes(1, (9, 9), (64, 32)), "bfloat16"),
        Workload(_axes(2, (6, 11), (70, 48)), "float16"),
        Workload(_axes(1, (8, 8), (128, 136)), "bfloat16"),
        Workload(_axes(1, (5, 4), (17, 9), kernel=3, stride=2), "float32", note="kernels overlap"),
        Workload(_axes(1, (4, 5), (32, 32), kernel=4, stride=2), "bfloat16", note="kernels overlap"),
        Workload(_axes(1, (3, 4), (16, 8), kernel=2, stride=3), "float32", note="gaps hold the bias alone"),
        Workload(_axes(2, (5, 3), (17, 9)), "float32", "mixed_scale"),
        Workload(_axes(1, (3, 4), (33, 15)), "bfloat16", "mixed_scale"),
        Workload(_axes(1, (5, 6), (15, 31)), "float16", "sparse"),
        Workload(_axes(1, (4, 5), (9, 17), kernel=3, stride=2), "bfloat16", "sparse"),
        Workload(_axes(1, (3, 3), (15, 17)), "float32", "cancelling"),
        Workload(_axes(2, (3, 5), (31, 16)), "float32", "integers"),
        Workload(_axes(1, (4, 3), (33, 15)), "bfloat16", "integers"),
        Workload(_axes(1, (3, 5), (17, 8), kernel=4, stride=2), "float16", "integers"),
        Workload(_axes(1, (72, 72), (1024, 512)), "bfloat16", use="target", note="SAM 3.1 neck, first of two"),
        Workload(_axes(1, (144, 144), (512, 256)), "bfloat16", use="target", note="SAM 3.1 neck, second"),
        Workload(_axes(1, (72, 72), (256, 64)), "bfloat16", use="target", note="SAM 3.1 mask decoder, first"),
        Workload(_axes(1, (144, 144), (64, 32)), "bfloat16", use="target", note="SAM 3.1 mask decoder, second"),
    ),
    source="torch.nn.functional.conv_transpose2d (no padding, no output padding, one group)",
    baselines=("conv_transpose2d",),
    rivals=("cuDNN in 16 bits, which rounds the sum before the bias",),
)
