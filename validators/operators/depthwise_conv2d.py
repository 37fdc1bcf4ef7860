"""Depthwise convolution with bias, channels last, output the size of the input."""

import torch
import torch.nn.functional as f

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def _accumulate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum the taps one by one in float64; x [b, h, w, c], weight [k, k, c] with odd k."""
    kernel, height, width = weight.shape[0], x.shape[1], x.shape[2]
    half = kernel // 2
    wide = f.pad(x.to(torch.float64), (0, 0, half, half, half, half))
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for r in range(kernel):
        for s in range(kernel):
            out += wide[:, r : r + height, s : s + width] * weight[r, s].to(torch.float64)
    return out


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the convolution of every channel with its own kernel, in float64.

    Args:
        x: [batch, height, width, channels].
        weight: [kernel_size, kernel_size, channels], kernel_size odd.
        bias: [channels].

    Returns:
        One tensor [batch, height, width, channels]; zeros outside the image.
    """
    return (_accumulate(x, weight) + bias.to(torch.float64),)


def condition(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squared products + bias^2)."""
    squares = _accumulate(x.to(torch.float64).square(), weight.to(torch.float64).square())
    return ((squares + bias.to(torch.float64).square()).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * elements * kernel_size^2 operations; x, y, weight and bias moved once."""
    elements = axes["batch"] * axes["height"] * axes["width"] * axes["channels"]
    taps = axes["kernel_size"] ** 2
    moved = 2 * elements + axes["channels"] * (taps + 1)
    return Cost(flops=2 * elements * taps, essential_bytes=moved * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Activations and kernels of mixed scale a channel, unit bias."""
    channels, kernel = axes["channels"], axes["kernel_size"]
    scale = torch.exp2(torch.randint(-3, 4, (channels,), generator=generator).to(torch.float32))
    x = torch.randn(axes["batch"], axes["height"], axes["width"], channels, generator=generator) * scale
    weight = torch.randn(kernel, kernel, channels, generator=generator) / kernel
    bias = torch.randn(channels, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype])


def _shapes(axes: Axes) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of x, weight and bias."""
    kernel = axes["kernel_size"]
    return (
        (axes["batch"], axes["height"], axes["width"], axes["channels"]),
        (kernel, kernel, axes["channels"]),
        (axes["channels"],),
    )


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels of scale 2^-6 … 2^6 behind a nominal one, the last channels 16 times the rest."""
    image, taps, width = _shapes(axes)
    x, weight = mixed(image, generator, spread=6), torch.randn(taps, generator=generator) / 4
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), torch.randn(width, generator=generator).to(DTYPES[dtype])


def sparse(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Single pixels in an image of zeros, the last corner among them: most of the answer is the bias."""
    image, taps, width = _shapes(axes)
    keep = torch.rand(image[:3], generator=generator) < 0.1
    keep[:, -1:, -1:] = True
    x = torch.randn(image, generator=generator) * keep[..., None]
    weight, bias = torch.randn(taps, generator=generator), torch.randn(width, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype])


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels around an offset of 16, weights of both signs: large terms, small sums, edges that stand out."""
    image, taps, width = _shapes(axes)
    x, weight = 16 + torch.randn(image, generator=generator), torch.randn(taps, generator=generator)
    weight = weight - weight.mean((0, 1), keepdim=True)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), torch.randn(width, generator=generator).to(DTYPES[dtype])


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    x, weight, bias = (signs(shape, generator).to(DTYPES[dtype]) for shape in _shapes(axes))
    return x, weight, bias


def _axes(batch: int, size: tuple[int, int], channels: int, kernel: int = 7) -> dict[str, int]:
    return {"batch": batch, "height": size[0], "width": size[1], "channels": channels, "kernel_size": kernel}


SPEC = Operator(
    name="depthwise_conv2d",
    summary="y[b, h, w, c] = bias[c] + sum_rs x[b, h + r - k//2, w + s - k//2, c] * weight[r, s, c]",
    signature="depthwise_conv2d(x, weight, bias)",
    axes=("batch", "height", "width", "channels", "kernel_size"),
    inputs=(
        Buffer("x", ("batch", "height", "width", "channels"), doc="channels last (NHWC)"),
        Buffer(
            "weight",
            ("kernel_size", "kernel_size", "channels"),
            static=True,
            doc="torch's [channels, 1, k, k] permuted to (2, 3, 0), so that a tap is contiguous over channels",
        ),
        Buffer("bias", ("channels",), static=True),
    ),
    outputs=(Buffer("y", ("batch", "height", "width", "channels"), doc="channels last (NHWC)"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=150, c_out=2),
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
        Workload(_axes(1, (1, 1), 1), "float32"),
        Workload(_axes(0, (5, 5), 32), "bfloat16", note="empty batch"),
        Workload(_axes(2, (3, 5), 19), "float32"),
        Workload(_axes(1, (5, 3), 66), "bfloat16"),
        Workload(_axes(1, (2, 6), 33), "float16"),
        Workload(_axes(1, (1, 11), 17), "bfloat16"),
        Workload(_axes(1, (6, 6), 17, kernel=3), "float32"),
        Workload(_axes(1, (7, 11), 40, kernel=5), "bfloat16"),
        Workload(_axes(2, (4, 3), 17), "float32", "mixed_scale"),
        Workload(_axes(1, (3, 5), 33), "bfloat16", "mixed_scale"),
        Workload(_axes(1, (8, 9), 15), "float16", "sparse"),
        Workload(_axes(1, (9, 4), 31, kernel=3), "bfloat16", "sparse"),
        Workload(_axes(1, (5, 6), 17), "float32", "cancelling"),
        Workload(_axes(2, (3, 4), 31), "float32", "integers"),
        Workload(_axes(1, (5, 3), 65), "bfloat16", "integers"),
        Workload(_axes(1, (72, 72), 256), "bfloat16", use="target", note="SAM 3.1 memory encoder, ConvNeXt block"),
        Workload(_axes(8, (72, 72), 256), "bfloat16", use="target", note="SAM 3.1 memory encoder, 8 buckets"),
    ),
    source="Liu et al., A ConvNet for the 2020s, 2022; torch.nn.functional.conv2d with groups = channels",
    baselines=("conv2d",),
    rivals=("cuDNN in 16 bits, which rounds the sum before the bias",),
)
