"""SwiGLU activation: the SiLU of the first half of every row times the second half."""

from typing import cast

import torch

from kb.validators.operators.draws import extremes, mixed, poisoned
from kb.validators.operators.spec import (
    DTYPES,
    UNIT_ROUNDOFF,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Workload,
    itemsize,
)

# As silu: 4 u + 2 |gate| u for exp, one more u for the product. c_out = 2 admits a truncating store.
ERROR = ErrorModel(accumulate="float32", c_acc=16, c_out=2)


def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return silu(gate) * up in float64; x [num_tokens, 2 * intermediate_size], gate first, then up."""
    gate, up = x.to(torch.float64).chunk(2, dim=-1)
    return (gate / (1 + torch.exp(-gate)) * up,)


def condition(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = |y| (1 + |gate| (1 - sigmoid gate)), plus the underflow of silu times |up|.

    exp turns a relative error of gate into |gate| times as much. Near gate = -88 silu fades below the smallest float32,
    where 1e-35 is lost (as in ``silu``); a large up makes that visible.
    """
    gate, up = x.to(torch.float64).chunk(2, dim=-1)
    sigmoid = torch.sigmoid(gate)
    lost = ERROR.tiny / (ERROR.c_acc * UNIT_ROUNDOFF[ERROR.accumulate])
    return ((gate * sigmoid * up).abs() * (1 + gate.abs() * (1 - sigmoid)) + lost * up.abs(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Five operations an output element; 2 I read and I written a token, I = intermediate_size."""
    elements = axes["num_tokens"] * axes["intermediate_size"]
    return Cost(flops=5 * elements, essential_bytes=3 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-3 … 2^3; gate and up independent, so that swapping the halves is wrong."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-3, 4, (rows, 1), generator=generator).to(torch.float32))
    x = torch.randn(rows, 2 * axes["intermediate_size"], generator=generator) * scale
    return (x.to(DTYPES[dtype]),)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with every second row of a buffer twice as tall: the row stride is 4 * intermediate_size."""
    (x,) = cast(tuple[torch.Tensor], normal({**axes, "num_tokens": 2 * axes["num_tokens"]}, dtype, generator))
    return (x[::2],)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^4 behind a nominal one, the last channels of gate and up 4 times the rest."""
    shape = (axes["num_tokens"], axes["intermediate_size"])
    x = torch.cat([mixed(shape, generator, spread=4, tail=2) for _ in range(2)], dim=1)
    return (x.to(DTYPES[dtype]),)


def corners(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gates at the corners of the format, where exp overflows and sigmoid fades to zero, times 1/4 … 1.

    The largest is the root of the format's range, so that no product of two values leaves it.
    """
    shape = (axes["num_tokens"], axes["intermediate_size"])
    top = torch.finfo(DTYPES[dtype]).max ** 0.5 / 2
    up = (0.25 + 0.75 * torch.rand(shape, generator=generator)).to(DTYPES[dtype])
    return (torch.cat([extremes(shape, dtype, generator, largest=top), up], dim=1),)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A few NaN in gate or up: they reach their own element and no other."""
    x = torch.randn(axes["num_tokens"], 2 * axes["intermediate_size"], generator=generator)
    return (poisoned(x, generator).to(DTYPES[dtype]),)


SPEC = Operator(
    name="silu_and_mul",
    summary="y = silu(x[:, :I]) * x[:, I:], I = intermediate_size",
    signature="silu_and_mul(x)",
    axes=("num_tokens", "intermediate_size"),
    inputs=(
        Buffer("x", ("num_tokens", "2*intermediate_size"), doc="gate in the first half of a row, up in the second"),
    ),
    outputs=(Buffer("y", ("num_tokens", "intermediate_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ERROR,
    cost=cost,
    laws={
        "normal": normal,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "corners": corners,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "intermediate_size": 1}, "float32"),
        Workload({"num_tokens": 0, "intermediate_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "intermediate_size": 127}, "float32"),
        Workload({"num_tokens": 5, "intermediate_size": 331}, "float16"),
        Workload({"num_tokens": 8, "intermediate_size": 512}, "bfloat16"),
        Workload({"num_tokens": 3, "intermediate_size": 48}, "bfloat16", law="strided"),
        Workload({"num_tokens": 17, "intermediate_size": 33}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 5, "intermediate_size": 129}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 3, "intermediate_size": 130}, "float32", law="corners"),
        Workload({"num_tokens": 2, "intermediate_size": 127}, "float16", law="corners"),
        Workload({"num_tokens": 2, "intermediate_size": 65}, "bfloat16", law="corners"),
        Workload({"num_tokens": 4, "intermediate_size": 31}, "bfloat16", law="poison"),
        Workload({"num_tokens": 8, "intermediate_size": 512}, "bfloat16", use="target", note="Qwen3.6 top-8, decode 1"),
        Workload(
            {"num_tokens": 32768, "intermediate_size": 512}, "bfloat16", use="target", note="Qwen3.6 top-8, 4096 tokens"
        ),
    ),
    source="Shazeer, GLU variants improve Transformer, 2020; the half order of fused gate_up projections",
    baselines=("silu_mul_compiled", "silu_mul"),
    rivals=("vllm silu_and_mul", "flashinfer.activation.silu_and_mul"),
)
