"""SiLU: x times its own sigmoid, element by element."""

from typing import cast

import torch

from kb.validators.operators.draws import extremes, mixed, poisoned
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Workload,
    itemsize,
)


def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x / (1 + exp(-x)) in float64; x [num_tokens, hidden_size]."""
    wide = x.to(torch.float64)
    return (wide / (1 + torch.exp(-wide)),)


def condition(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = |y| (1 + |x| (1 - sigmoid x)): exp turns a relative error of x into |x| times as much."""
    wide = x.to(torch.float64)
    gate = torch.sigmoid(wide)
    return ((wide * gate).abs() * (1 + wide.abs() * (1 - gate)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Four operations an element (exp, add, divide, multiply); x read once, y written once."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=4 * elements, essential_bytes=2 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^3, so that both the linear and the curved part are met."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-4, 4, (rows, 1), generator=generator).to(torch.float32))
    return ((torch.randn(rows, axes["hidden_size"], generator=generator) * scale).to(DTYPES[dtype]),)


def tails(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Uniform in [-120, 120]: exp(-x) overflows float32 below -88, where y must fade to zero and not to NaN."""
    x = torch.rand(axes["num_tokens"], axes["hidden_size"], generator=generator)
    return (((x - 0.5) * 240).to(DTYPES[dtype]),)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but a slice of wider rows: the row stride is hidden_size + 5."""
    (x,) = cast(tuple[torch.Tensor], normal({**axes, "hidden_size": axes["hidden_size"] + 5}, dtype, generator))
    return (x[:, : axes["hidden_size"]],)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one, the last columns 16 times the rest."""
    x = mixed((axes["num_tokens"], axes["hidden_size"]), generator)
    return (x.to(DTYPES[dtype]),)


def corners(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The corners of the format, as ``draws.extremes`` has them."""
    x = extremes((axes["num_tokens"], axes["hidden_size"]), dtype, generator)
    return (x,)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with a few NaN: they stay NaN, and what lies beside them is not touched."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    return (poisoned(x, generator).to(DTYPES[dtype]),)


SPEC = Operator(
    name="silu",
    summary="y = x * sigmoid(x), element by element",
    signature="silu(x)",
    axes=("num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens", "hidden_size")),),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # exp: 4 u for the hardware approximation plus 2 |x| u for scaling its argument by log2(e); twice that is free.
    # c_out = 2 admits a store that truncates, as Triton's interpreter does for bfloat16.
    error=ErrorModel(accumulate="float32", c_acc=16, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "tails": tails,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "corners": corners,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 3, "hidden_size": 1031}, "float32"),
        Workload({"num_tokens": 7, "hidden_size": 257}, "float32", law="tails"),
        Workload({"num_tokens": 5, "hidden_size": 512}, "bfloat16", law="strided"),
        Workload({"num_tokens": 2, "hidden_size": 129}, "float16", law="tails"),
        Workload({"num_tokens": 5, "hidden_size": 127}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 17, "hidden_size": 33}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 3, "hidden_size": 129}, "float16", law="corners"),
        Workload({"num_tokens": 2, "hidden_size": 257}, "float32", law="corners"),
        Workload({"num_tokens": 2, "hidden_size": 127}, "bfloat16", law="corners"),
        Workload({"num_tokens": 4, "hidden_size": 31}, "float32", law="poison"),
        Workload({"num_tokens": 1, "hidden_size": 8192}, "bfloat16", use="target", note="Qwen3.6 GDN conv, decode"),
        Workload({"num_tokens": 4096, "hidden_size": 8192}, "bfloat16", use="target", note="Qwen3.6 GDN conv, prefill"),
    ),
    source="Elfwing, Uchibe and Doya, Sigmoid-weighted linear units, 2017; torch.nn.functional.silu",
    baselines=("silu",),
)
