"""Output gate of attention: x times the sigmoid of a gate, per head."""

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


def reference(x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x / (1 + exp(-gate)) in float64; x and gate [num_tokens, num_heads, head_dim]."""
    return (x.to(torch.float64) / (1 + torch.exp(-gate.to(torch.float64))),)


def condition(x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = |y| (1 + |gate| (1 - sigmoid gate)): exp turns a relative error of gate into |gate| times as much."""
    wide = gate.to(torch.float64)
    sigmoid = torch.sigmoid(wide)
    return ((x.to(torch.float64) * sigmoid).abs() * (1 + wide.abs() * (1 - sigmoid)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Four operations an element; x and gate read once, y written once."""
    elements = axes["num_tokens"] * axes["num_heads"] * axes["head_dim"]
    return Cost(flops=4 * elements, essential_bytes=3 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens of scale 2^-3 … 2^3 in x; gates of deviation 2, so that many are neither open nor closed."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    scale = torch.exp2(torch.randint(-3, 4, (shape[0], 1, 1), generator=generator).to(torch.float32))
    x = torch.randn(shape, generator=generator) * scale
    gate = 2 * torch.randn(shape, generator=generator)
    return x.to(DTYPES[dtype]), gate.to(DTYPES[dtype])


def fused_projection(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with gate the second half of every head of a [tokens, heads, 2 * head_dim] projection."""
    x, gate = cast(tuple[torch.Tensor, torch.Tensor], normal(axes, dtype, generator))
    return x, torch.cat([torch.zeros_like(gate), gate], dim=-1)[..., axes["head_dim"] :]


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of x of scale 2^-8 … 2^8 behind a nominal one, gates of 2^-3 … 2^3, the last channels 16 times the rest."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    x, gate = mixed(shape, generator), mixed(shape, generator, spread=3)
    return x.to(DTYPES[dtype]), gate.to(DTYPES[dtype])


def corners(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gates at the corners of the format, where exp overflows and the gate fades to zero."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    return torch.randn(shape, generator=generator).to(DTYPES[dtype]), extremes(shape, dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A few NaN in x and in gate: they reach their own element and no other."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    x, gate = (torch.randn(shape, generator=generator) for _ in range(2))
    return poisoned(x, generator).to(DTYPES[dtype]), poisoned(gate, generator).to(DTYPES[dtype])


SPEC = Operator(
    name="sigmoid_mul",
    summary="y = x * sigmoid(gate), per token and head",
    signature="sigmoid_mul(x, gate)",
    axes=("num_tokens", "num_heads", "head_dim"),
    inputs=(
        Buffer("x", ("num_tokens", "num_heads", "head_dim"), doc="attention output"),
        Buffer(
            "gate",
            ("num_tokens", "num_heads", "head_dim"),
            doc="before the sigmoid; token and head strides are free (query+gate projections interleave per head)",
        ),
    ),
    outputs=(Buffer("y", ("num_tokens", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # As silu: 4 u + 2 |gate| u for exp, the rest for division and product. c_out = 2 admits a truncating store.
    error=ErrorModel(accumulate="float32", c_acc=16, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "fused_projection": fused_projection,
        "mixed_scale": mixed_scale,
        "corners": corners,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "num_heads": 1, "head_dim": 1}, "float32"),
        Workload({"num_tokens": 0, "num_heads": 4, "head_dim": 64}, "bfloat16"),
        Workload({"num_tokens": 5, "num_heads": 3, "head_dim": 37}, "float32"),
        Workload({"num_tokens": 3, "num_heads": 16, "head_dim": 256}, "bfloat16", law="fused_projection"),
        Workload({"num_tokens": 4, "num_heads": 5, "head_dim": 72}, "float16", law="fused_projection"),
        Workload({"num_tokens": 7, "num_heads": 2, "head_dim": 64}, "float16"),
        Workload({"num_tokens": 17, "num_heads": 3, "head_dim": 33}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 3, "num_heads": 2, "head_dim": 129}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 3, "num_heads": 2, "head_dim": 65}, "float32", law="corners"),
        Workload({"num_tokens": 2, "num_heads": 1, "head_dim": 127}, "float16", law="corners"),
        Workload({"num_tokens": 2, "num_heads": 3, "head_dim": 31}, "bfloat16", law="corners"),
        Workload({"num_tokens": 3, "num_heads": 2, "head_dim": 31}, "bfloat16", law="poison"),
        Workload(
            {"num_tokens": 1, "num_heads": 16, "head_dim": 256},
            "bfloat16",
            "fused_projection",
            "target",
            "Qwen3.6 decode",
        ),
        Workload(
            {"num_tokens": 64, "num_heads": 16, "head_dim": 256},
            "bfloat16",
            "fused_projection",
            "target",
            "Qwen3.6 decode 64",
        ),
        Workload(
            {"num_tokens": 4096, "num_heads": 16, "head_dim": 256},
            "bfloat16",
            "fused_projection",
            "target",
            "Qwen3.6 prefill",
        ),
    ),
    source="Qiu et al., Gated attention for large language models, 2025; Qwen3.5 full-attention layers",
    baselines=("sigmoid_mul_compiled", "sigmoid_mul"),
)
