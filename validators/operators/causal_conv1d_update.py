"""One step of a causal depthwise convolution per channel, with the last inputs kept as state."""

from typing import cast

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


def _window(x: torch.Tensor, conv_state: torch.Tensor) -> torch.Tensor:
    """Return the inputs under the filter, oldest first, [num_seqs, width, num_channels]."""
    return torch.cat([conv_state, x[:, None]], 1)


def reference(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return y and the new state in float64; shapes as in ``SPEC``."""
    window = _window(x, conv_state).double()
    z = (window * weight.double().T).sum(1)
    return (z * torch.sigmoid(z) if silu else z), window[:, 1:]


def condition(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return S: 1.1 (the steepest silu) sqrt(sum w^2 x^2), |silu| (1 + |z|) for its exponential; 0 for the state."""
    window = _window(x, conv_state).double()
    scale = (window * weight.double().T).square().sum(1).sqrt()
    if silu:
        z = (window * weight.double().T).sum(1)
        scale = 1.1 * scale + (z * torch.sigmoid(z)).abs() * (1 + z.abs())
    return scale, torch.zeros_like(window[:, 1:])


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * width operations a channel and 4 for silu; x, y, state in and out, and the filter once."""
    channels = axes["num_seqs"] * axes["num_channels"]
    elements = channels * (2 + 2 * axes["state_len"]) + axes["num_channels"] * axes["width"]
    return Cost(flops=channels * (2 * axes["width"] + 4), essential_bytes=elements * itemsize(dtype))


def _draw(axes: Axes, dtype: str, generator: torch.Generator, silu: int) -> Arguments:
    seqs, channels, kind = axes["num_seqs"], axes["num_channels"], DTYPES[dtype]
    size = torch.exp2(torch.randint(-3, 4, (channels,), generator=generator).float())
    x = torch.randn(seqs, channels, generator=generator) * size
    state = torch.randn(seqs, axes["state_len"], channels, generator=generator) * size
    weight = 0.7 * torch.randn(channels, axes["width"], generator=generator)
    return x.to(kind), state.to(kind), weight.to(kind), silu


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Channels of scale 2^-3 … 2^3, with silu."""
    return _draw(axes, dtype, generator, 1)


def linear(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The same without silu."""
    return _draw(axes, dtype, generator, 0)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Draw x as the first part of a wider projection."""
    x, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, 1))
    return torch.cat([x, x], 1)[:, : x.shape[1]], *rest


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Sequences of scale 2^-8 … 2^8 behind a nominal one, the last channels 16 times the rest; with silu."""
    seqs, channels, kind = axes["num_seqs"], axes["num_channels"], DTYPES[dtype]
    x = mixed((seqs, channels), generator)
    state = mixed((seqs, axes["state_len"], channels), generator)
    weight = 0.7 * torch.randn(channels, axes["width"], generator=generator)
    return x.to(kind), state.to(kind), weight.to(kind), 1


def saturated(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Sums of deviation 60: silu is x or nothing, and its exp overflows; the oldest input weighs most."""
    x, state, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, 1))
    state[:, :1] = (60 * torch.randn(state[:, :1].shape, generator=generator)).to(state.dtype)
    return x, state, *rest


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers without silu: every order of summation gives the same sum."""
    seqs, channels, kind = axes["num_seqs"], axes["num_channels"], DTYPES[dtype]
    shapes = ((seqs, channels), (seqs, axes["state_len"], channels), (channels, axes["width"]))
    x, state, weight = (signs(shape, generator).to(kind) for shape in shapes)
    return x, state, weight, 0


AXES = ("num_seqs", "num_channels", "width", "state_len")


def _case(
    sizes: tuple[int, int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(AXES, (*sizes, sizes[2] - 1), strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="causal_conv1d_update",
    summary="y = silu(sum_w weight[c, w] * window[w, c]), window = the last width-1 inputs and x; the state moves on",
    signature="causal_conv1d_update(x, conv_state, weight, silu=1)",
    axes=AXES,
    inputs=(
        Buffer("x", ("num_seqs", "num_channels"), doc="leading stride is free"),
        Buffer("conv_state", ("num_seqs", "state_len", "num_channels"), doc="state_len = width - 1, oldest first"),
        Buffer("weight", ("num_channels", "width"), doc="the last column meets x", static=True),
        Scalar("silu", 1, "1: y = z sigmoid(z); 0: y = z"),
    ),
    outputs=(
        Buffer("y", ("num_seqs", "num_channels")),
        Buffer("new_state", ("num_seqs", "state_len", "num_channels"), doc="without its oldest row, x appended, exact"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=32, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "linear": linear,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "saturated": saturated,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        _case((1, 1, 2), "float32"),
        _case((0, 64, 4), "bfloat16"),
        _case((3, 515, 4), "bfloat16"),
        _case((7, 129, 4), "float32", law="linear"),
        _case((2, 1024, 4), "float16", law="strided"),
        _case((5, 37, 3), "bfloat16", law="strided"),
        _case((5, 33, 4), "float32", law="mixed_scale"),
        _case((3, 129, 4), "bfloat16", law="mixed_scale"),
        _case((4, 65, 4), "float32", law="saturated"),
        _case((2, 31, 4), "float16", law="saturated"),
        _case((3, 127, 4), "float32", law="integers"),
        _case((5, 17, 2), "bfloat16", law="integers"),
        _case((1, 8192, 4), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((64, 8192, 4), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((256, 8192, 4), "bfloat16", use="target", note="Qwen3.6 decode"),
    ),
    source="transformers qwen3_5_moe (torch_causal_conv1d_update), state transposed so that channels are contiguous",
    baselines=("window_sum_compiled", "window_sum"),
    rivals=("causal_conv1d.causal_conv1d_update", "vllm causal_conv1d_update"),
)
