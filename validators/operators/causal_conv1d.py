"""A causal depthwise convolution over whole sequences that starts from a kept state and hands the next one on.

``causal_conv1d_update`` is the same for a single token, and takes the state that comes out here.
"""

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


def _sums(known: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return sum_w known[s, t + w, c] weight[c, w]: known without its last width - 1 rows in shape.

    Tap by tap, as windows of a long prompt would take width times the memory.
    """
    width = weight.shape[1]
    length = known.shape[1] - width + 1
    z = known[:, :length] * weight[:, 0]
    for tap in range(1, width):
        z += known[:, tap : tap + length] * weight[:, tap]
    return z


def reference(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return y and the last inputs in float64; shapes as in ``SPEC``."""
    known = torch.cat([conv_state, x], 1).double()
    z = _sums(known, weight.double())
    return (z * torch.sigmoid(z) if silu else z), known[:, known.shape[1] - conv_state.shape[1] :]


def condition(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return S: 1.1 (the steepest silu) sqrt(sum w^2 x^2), |silu| (1 + |z|) for its exponential; 0 for the state."""
    known = torch.cat([conv_state, x], 1).double()
    scale = _sums(known.square(), weight.double().square()).sqrt()
    if silu:
        z = _sums(known, weight.double())
        scale = 1.1 * scale + (z * torch.sigmoid(z)).abs() * (1 + z.abs())
    return scale, torch.zeros_like(known[:, known.shape[1] - conv_state.shape[1] :])


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * width operations an element and 4 for silu; x, y, state in and out, and the filter once."""
    lanes = axes["num_seqs"] * axes["num_channels"]
    elements = lanes * 2 * (axes["num_tokens"] + axes["state_len"]) + axes["num_channels"] * axes["width"]
    flops = lanes * axes["num_tokens"] * (2 * axes["width"] + 4)
    return Cost(flops=flops, essential_bytes=elements * itemsize(dtype))


def _shapes(axes: Axes) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int]]:
    seqs, channels = axes["num_seqs"], axes["num_channels"]
    return (
        (seqs, axes["num_tokens"], channels),
        (seqs, axes["state_len"], channels),
        (channels, axes["width"]),
    )


def _draw(axes: Axes, dtype: str, generator: torch.Generator, silu: int) -> Arguments:
    x_shape, state_shape, filter_shape = _shapes(axes)
    size = torch.exp2(torch.randint(-3, 4, (axes["num_channels"],), generator=generator).float())
    x = torch.randn(x_shape, generator=generator) * size
    state = torch.randn(state_shape, generator=generator) * size
    weight = 0.7 * torch.randn(filter_shape, generator=generator)
    kind = DTYPES[dtype]
    return x.to(kind), state.to(kind), weight.to(kind), silu


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Channels of scale 2^-3 … 2^3, with silu; every sequence continues one that came before."""
    return _draw(axes, dtype, generator, 1)


def linear(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The same without silu."""
    return _draw(axes, dtype, generator, 0)


def first_chunk(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Sequences in turn without a past (a state of zeros) and with one, the first at random."""
    x, state, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, 1))
    state[int(torch.randint(0, 2, (1,), generator=generator)) :: 2] = 0
    return x, state, *rest


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Draw x as the first part of a wider projection, other values beside it."""
    x, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, 1))
    return torch.cat([x, 1 + x], 2)[:, :, : x.shape[2]], *rest


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens of scale 2^-8 … 2^8 behind a nominal one, the last channels 16 times the rest; with silu."""
    x_shape, state_shape, filter_shape = _shapes(axes)
    x, state = mixed(x_shape, generator), mixed(state_shape, generator)
    weight = 0.7 * torch.randn(filter_shape, generator=generator)
    kind = DTYPES[dtype]
    return x.to(kind), state.to(kind), weight.to(kind), 1


def saturated(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """About every fourth token sixty times the rest, and the oldest of the state: the exp of silu overflows there."""
    x, state, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, 1))
    loud = torch.rand(x.shape[:2], generator=generator) < 0.25
    x = torch.where(loud[..., None], 60 * torch.randn(x.shape, generator=generator).to(x.dtype), x)
    state[:, :1] = (60 * torch.randn(state[:, :1].shape, generator=generator)).to(state.dtype)
    return x, state, *rest


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers without silu: every order of summation gives the same sum."""
    x, state, weight = (signs(shape, generator).to(DTYPES[dtype]) for shape in _shapes(axes))
    return x, state, weight, 0


AXES = ("num_seqs", "num_tokens", "num_channels", "width", "state_len")


def _case(
    sizes: tuple[int, int, int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(AXES, (*sizes, sizes[3] - 1), strict=True)), dtype, law=law, use=use, note=note)


_X = ("num_seqs", "num_tokens", "num_channels")
_STATE = ("num_seqs", "state_len", "num_channels")

SPEC = Operator(
    name="causal_conv1d",
    summary="y[t] = silu(sum_w weight[c, w] * known[t + w, c]), known = state, then x; its end is the new state",
    signature="causal_conv1d(x, conv_state, weight, silu=1)",
    axes=AXES,
    inputs=(
        Buffer("x", _X, doc="num_tokens of every sequence; leading strides are free"),
        Buffer("conv_state", _STATE, doc="the width - 1 inputs before x, oldest first; zeros where there were none"),
        Buffer("weight", ("num_channels", "width"), doc="the last column meets the token itself", static=True),
        Scalar("silu", 1, "1: y = z sigmoid(z); 0: y = z"),
    ),
    outputs=(
        Buffer("y", _X),
        Buffer("new_state", _STATE, doc="the last width - 1 rows of the state and x together, exact"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=32, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "linear": linear,
        "first_chunk": first_chunk,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "saturated": saturated,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        _case((1, 1, 1, 2), "float32"),
        _case((2, 0, 64, 4), "bfloat16", note="no token: the state is returned"),
        _case((0, 5, 32, 4), "bfloat16", note="no sequence"),
        _case((3, 2, 129, 4), "bfloat16", note="fewer tokens than the state has rows"),
        _case((1, 67, 515, 4), "bfloat16"),
        _case((2, 33, 127, 4), "float32", law="linear"),
        _case((3, 37, 40, 4), "bfloat16", law="first_chunk"),
        _case((2, 131, 72, 4), "float16", law="strided"),
        _case((2, 35, 37, 3), "bfloat16", law="strided"),
        _case((2, 65, 33, 4), "float32", law="mixed_scale"),
        _case((1, 31, 129, 4), "bfloat16", law="mixed_scale"),
        _case((2, 29, 65, 4), "float32", law="saturated"),
        _case((1, 64, 31, 4), "float16", law="saturated"),
        _case((2, 97, 63, 4), "float32", law="integers"),
        _case((2, 17, 17, 2), "bfloat16", law="integers"),
        _case((1, 1024, 8192, 4), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((1, 4096, 8192, 4), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((8, 4096, 8192, 4), "bfloat16", use="target", note="Qwen3.6 prefill, eight prompts"),
    ),
    source="transformers qwen3_5_moe (conv1d, padding width - 1, silu), tokens first so that channels are contiguous",
    baselines=("shifted_sum_compiled", "shifted_sum", "conv1d"),
    rivals=("causal_conv1d.causal_conv1d_fn", "vllm causal_conv1d_fn"),
)
