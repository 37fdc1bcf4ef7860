"""LayerNorm: every row centred, divided by its standard deviation, times a weight, plus a bias."""

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


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return (x - mean) / sqrt(var + eps) * weight + bias in float64; var divides by hidden_size.

    x [num_tokens, hidden_size], weight and bias [hidden_size].
    """
    wide = x.to(torch.float64)
    centred = wide - wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (centred * rstd * weight.to(torch.float64) + bias.to(torch.float64),)


def condition(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return S = rstd |w| (|x| + rms(x)) + |b|: centring loses u times the size of what it subtracts.

    Two passes stay within a few u S at any mean; E[x^2] - mean^2 errs by (mean / deviation)^2 u and does not.
    """
    wide, w = x.to(torch.float64), weight.to(torch.float64)
    variance = (wide - wide.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
    rms = wide.square().mean(-1, keepdim=True).sqrt()
    return (torch.rsqrt(variance + eps) * w.abs() * (wide.abs() + rms) + bias.to(torch.float64).abs(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Eight operations an element; x read once, y written once, weight and bias read once."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=8 * elements, essential_bytes=2 * (elements + axes["hidden_size"]) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^4 with a mean of the same size, weights around 1, biases around 0."""
    rows, hidden = axes["num_tokens"], axes["hidden_size"]
    scale = torch.exp2(torch.randint(-4, 5, (rows, 1), generator=generator).to(torch.float32))
    x = (torch.randn(rows, hidden, generator=generator) + torch.randn(rows, 1, generator=generator)) * scale
    weight = 1 + 0.5 * torch.randn(hidden, generator=generator)
    bias = 0.5 * torch.randn(hidden, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), 1e-6


def offset(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A mean of 1000 deviations (40 below float32): E[x^2] - mean^2 in float32 is then wrong in the third digit."""
    x, weight, bias, eps = cast(
        tuple[torch.Tensor, torch.Tensor, torch.Tensor, float], normal(axes, "float32", generator)
    )
    shifted = torch.randn(x.shape, generator=generator) + (1000.0 if dtype == "float32" else 40.0)
    return shifted.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), eps


def _finish(x: torch.Tensor, dtype: str, generator: torch.Generator) -> Arguments:
    weight = 1 + 0.5 * torch.randn(x.shape[-1], generator=generator)
    bias = 0.5 * torch.randn(x.shape[-1], generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), epsilon(generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one; the last eighth of a row holds nearly all of its energy."""
    return _finish(mixed((axes["num_tokens"], axes["hidden_size"]), generator), dtype, generator)


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-14, where eps rules, and of 2^13 (float16) or 2^50, whose squares leave float16."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator).clamp(-3, 3)
    large = 2.0**13 if dtype == "float16" else 2.0**50
    pick = torch.rand(axes["num_tokens"], 1, generator=generator) < 0.5
    return _finish(x * torch.where(pick, 2.0**-14, large), dtype, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant rows (their variance is zero: the bias is the answer), sorted, paired and nearly empty ones."""
    return _finish(structured((axes["num_tokens"], axes["hidden_size"]), generator), dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN makes its own row NaN and no other."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    return _finish(poisoned(x, generator), dtype, generator)


SPEC = Operator(
    name="layernorm",
    summary="y = (x - mean) / sqrt(var + eps) * weight + bias, over the last axis",
    signature="layernorm(x, weight, bias, eps=1e-6)",
    axes=("num_tokens", "hidden_size"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size")),
        Buffer("weight", ("hidden_size",), static=True),
        Buffer("bias", ("hidden_size",), static=True),
        Scalar("eps", 1e-6, "added to the variance"),
    ),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does for bfloat16.
    error=ErrorModel(accumulate="float32", c_acc=16, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "offset": offset,
        "mixed_scale": mixed_scale,
        "extreme_rows": extreme_rows,
        "structure": structure,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "hidden_size": 127}, "float32"),
        Workload({"num_tokens": 3, "hidden_size": 1024}, "bfloat16"),
        Workload({"num_tokens": 5, "hidden_size": 1153}, "float16", law="offset"),
        Workload({"num_tokens": 4, "hidden_size": 521}, "float32", law="offset"),
        Workload({"num_tokens": 2, "hidden_size": 4099}, "bfloat16", law="offset"),
        Workload({"num_tokens": 5, "hidden_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 6, "hidden_size": 514}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 5, "hidden_size": 33}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 4, "hidden_size": 257}, "float32", law="extreme_rows"),
        Workload({"num_tokens": 9, "hidden_size": 127}, "float32", law="structure"),
        Workload({"num_tokens": 8, "hidden_size": 31}, "bfloat16", law="structure"),
        Workload({"num_tokens": 5, "hidden_size": 17}, "bfloat16", law="poison"),
        Workload({"num_tokens": 5184, "hidden_size": 1024}, "bfloat16", use="target", note="SAM 3.1 image encoder"),
        Workload(
            {"num_tokens": 5184, "hidden_size": 256}, "bfloat16", use="target", note="SAM 3.1 fusion, memory attention"
        ),
        Workload({"num_tokens": 2304, "hidden_size": 1152}, "bfloat16", use="target", note="Qwen3.6 vision tower"),
    ),
    source="Ba, Kiros and Hinton, Layer normalization, 2016; torch.nn.functional.layer_norm",
    baselines=("layer_norm", "layer_norm_compiled"),
)
