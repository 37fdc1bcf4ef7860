"""GroupNorm over images: every group of channels centred and scaled together, then a weight and bias a channel."""

from typing import cast

import torch

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


def _moments(x: torch.Tensor, num_groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x in float64 as [batch, groups, elements of a group], and its mean over them."""
    wide = x.to(torch.float64).reshape(x.shape[0], num_groups, x.shape[1:].numel() // num_groups)
    return wide, wide.mean(-1, keepdim=True)


def _by_channel(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to(torch.float64)[None, :, None, None]


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5
) -> tuple[torch.Tensor, ...]:
    """Return (x - mean) / sqrt(var + eps) * weight + bias in float64, moments over a group of channels of one image.

    x [batch_size, num_channels, height, width], row-major; weight and bias [num_channels].
    """
    wide, mean = _moments(x, num_groups)
    centred = wide - mean
    normalised = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (normalised.reshape(x.shape) * _by_channel(weight) + _by_channel(bias),)


def condition(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int, eps: float = 1e-5
) -> tuple[torch.Tensor, ...]:
    """Return S = rstd |w| (|x| + rms of the group) + |b|: centring loses u times the size of what it subtracts."""
    wide, mean = _moments(x, num_groups)
    rstd = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + eps)
    spread = rstd * (wide.abs() + wide.square().mean(-1, keepdim=True).sqrt())
    return (spread.reshape(x.shape) * _by_channel(weight).abs() + _by_channel(bias).abs(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Eight operations an element; x read once, y written once, weight and bias read once."""
    elements = axes["batch_size"] * axes["num_channels"] * axes["height"] * axes["width"]
    return Cost(flops=8 * elements, essential_bytes=2 * (elements + axes["num_channels"]) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Channels of scale 2^-2 … 2^2 and of means around 0, so that a norm a channel or an image is wrong."""
    channels = axes["num_channels"]
    scale = torch.exp2(torch.randint(-2, 3, (1, channels, 1, 1), generator=generator).to(torch.float32))
    x = torch.randn(axes["batch_size"], channels, axes["height"], axes["width"], generator=generator)
    x = (x + torch.randn(1, channels, 1, 1, generator=generator)) * scale
    weight = 1 + 0.5 * torch.randn(channels, generator=generator)
    bias = 0.5 * torch.randn(channels, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["num_groups"], 1e-5


def offset(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A mean of 1000 deviations (40 below float32): E[x^2] - mean^2 in float32 is then wrong in the third digit."""
    x, weight, bias, groups, eps = cast(
        tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, float], normal(axes, dtype, generator)
    )
    shifted = torch.randn(x.shape, generator=generator) + (1000.0 if dtype == "float32" else 40.0)
    return shifted.to(DTYPES[dtype]), weight, bias, groups, eps


_AXES = ("batch_size", "num_channels", "height", "width", "num_groups")


def _workload(
    sizes: tuple[int, ...], dtype: str, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="groupnorm",
    summary="y = (x - mean) / sqrt(var + eps) * weight + bias, moments over the channels of a group and all pixels",
    signature="groupnorm(x, weight, bias, num_groups, eps=1e-5)",
    axes=_AXES,
    inputs=(
        Buffer("x", ("batch_size", "num_channels", "height", "width")),
        Buffer("weight", ("num_channels",), static=True),
        Buffer("bias", ("num_channels",), static=True),
        Scalar("num_groups", None, "divides num_channels"),
        Scalar("eps", 1e-5, "added to the variance"),
    ),
    outputs=(Buffer("y", ("batch_size", "num_channels", "height", "width")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # As layernorm; twice the constant for groups of a million elements, whose sums are longer. c_out = 2: truncation.
    error=ErrorModel(accumulate="float32", c_acc=32, c_out=2),
    cost=cost,
    laws={"normal": normal, "offset": offset},
    workloads=(
        _workload((1, 1, 1, 1, 1), "float32"),
        _workload((0, 8, 4, 4, 2), "bfloat16"),
        _workload((2, 6, 7, 5, 3), "float32"),
        _workload((1, 8, 33, 31, 2), "float32", "offset"),
        _workload((2, 16, 13, 8, 8), "bfloat16"),
        _workload((3, 10, 1, 1, 5), "float16"),
        _workload((1, 4, 96, 101, 2), "bfloat16", "offset"),
        _workload((1, 256, 72, 72, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 72 x 72"),
        _workload((1, 256, 144, 144, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 144 x 144"),
        _workload((1, 256, 288, 288, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 288 x 288"),
    ),
    source="Wu and He, Group normalization, 2018; torch.nn.functional.group_norm",
    baselines=("torch.nn.functional.group_norm",),
)
