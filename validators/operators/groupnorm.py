"""GroupNorm over images: every group of channels centred and scaled together, then a weight and bias a channel."""

from typing import cast

import torch

from kb.validators.operators.draws import epsilon, mixed, poisoned, structured
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


def _finish(x: torch.Tensor, axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    weight = 1 + 0.5 * torch.randn(x.shape[1], generator=generator)
    bias = 0.5 * torch.randn(x.shape[1], generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), axes["num_groups"], epsilon(generator)


def _by_group(axes: Axes) -> tuple[int, ...]:
    """Return the shape in which a row is a group."""
    pixels = axes["height"] * axes["width"]
    return axes["batch_size"], axes["num_groups"], axes["num_channels"] // axes["num_groups"] * pixels


def _image(rows: torch.Tensor, axes: Axes) -> torch.Tensor:
    return rows.reshape(axes["batch_size"], axes["num_channels"], axes["height"], axes["width"])


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Groups of scale 2^-8 … 2^8 behind a nominal one; the last eighth of a group holds nearly all of its energy."""
    return _finish(_image(mixed(_by_group(axes), generator), axes), axes, dtype, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant groups (their variance is zero: the bias is the answer), sorted, paired and nearly empty ones."""
    return _finish(_image(structured(_by_group(axes), generator), axes), axes, dtype, generator)


def extreme_groups(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Groups of scale 2^-14, where eps rules, and of 2^13 (float16) or 2^45, whose squares leave float16."""
    shape = _by_group(axes)
    large = 2.0**13 if dtype == "float16" else 2.0**45
    pick = torch.rand(*shape[:2], 1, generator=generator) < 0.5
    x = torch.randn(shape, generator=generator).clamp(-3, 3) * torch.where(pick, 2.0**-14, large)
    return _finish(_image(x, axes), axes, dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN makes its own group of its own image NaN and no other."""
    x = poisoned(torch.randn(_by_group(axes), generator=generator), generator)
    return _finish(_image(x, axes), axes, dtype, generator)


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
    laws={
        "normal": normal,
        "offset": offset,
        "mixed_scale": mixed_scale,
        "structure": structure,
        "extreme_groups": extreme_groups,
        "poison": poison,
    },
    workloads=(
        _workload((1, 1, 1, 1, 1), "float32"),
        _workload((0, 8, 4, 4, 2), "bfloat16"),
        _workload((2, 6, 7, 5, 3), "float32"),
        _workload((1, 8, 33, 31, 2), "float32", "offset"),
        _workload((2, 16, 13, 8, 8), "bfloat16"),
        _workload((3, 10, 1, 1, 5), "float16"),
        _workload((1, 4, 96, 101, 2), "bfloat16", "offset"),
        _workload((2, 6, 3, 11, 3), "float32", "mixed_scale"),
        _workload((1, 12, 17, 8, 4), "bfloat16", "mixed_scale"),
        _workload((3, 6, 5, 5, 3), "float32", "structure"),
        _workload((2, 8, 4, 31, 4), "bfloat16", "structure"),
        _workload((2, 9, 7, 3, 3), "float16", "extreme_groups"),
        _workload((2, 6, 1, 17, 3), "bfloat16", "poison"),
        _workload((1, 256, 72, 72, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 72 x 72"),
        _workload((1, 256, 144, 144, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 144 x 144"),
        _workload((1, 256, 288, 288, 8), "bfloat16", "normal", "target", "SAM 3.1 mask head, 288 x 288"),
    ),
    source="Wu and He, Group normalization, 2018; torch.nn.functional.group_norm",
    baselines=("group_norm", "group_norm_compiled"),
    rivals=("torch.group_norm in 16 bits, whose moments are rounded to 16 bits",),
)
