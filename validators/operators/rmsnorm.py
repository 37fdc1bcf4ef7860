"""RMSNorm: every row divided by its root mean square, times a weight."""

from typing import cast

import torch

from kb.validators.operators.draws import epsilon, mixed, poisoned, structured
from kb.validators.operators.spec import (
    DTYPES,
    UNDERFLOW,
    UNIT_ROUNDOFF,
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

C_ACC = 64


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return x / sqrt(mean(x^2) + eps) * weight in float64; x [num_tokens, hidden_size], weight [hidden_size]."""
    wide = x.to(torch.float64)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(torch.float64),)


def condition(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return S = |y|, widened by |weight| times what one rounding loses near zero.

    One convention rounds the normalised row to the storage dtype before it is weighted: in float16 an element beside
    a much larger one is subnormal then, and the weight multiplies its loss. In units of c_acc * u(float32).
    """
    (y,) = reference(x, weight, eps)
    lost = UNDERFLOW[str(x.dtype).removeprefix("torch.")] / (C_ACC * UNIT_ROUNDOFF["float32"])
    return (y.abs() + weight.to(torch.float64).abs() * lost,)


def cost(axes: Axes, dtype: str) -> Cost:
    """Four operations an element; x read once, y written once, weight read once."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=4 * elements, essential_bytes=(2 * elements + axes["hidden_size"]) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^4, so that an identity is no answer, and weights around 1."""
    rows, hidden = axes["num_tokens"], axes["hidden_size"]
    scale = torch.exp2(torch.randint(-4, 5, (rows, 1), generator=generator).to(torch.float32))
    x = torch.randn(rows, hidden, generator=generator) * scale
    weight = 1 + 0.5 * torch.randn(hidden, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), 1e-6


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the rows are slices of wider ones, as q or k inside a fused projection."""
    hidden = axes["hidden_size"]
    x, weight, eps = cast(
        tuple[torch.Tensor, torch.Tensor, float], normal({**axes, "hidden_size": hidden + 24}, dtype, generator)
    )
    return x[:, 8 : 8 + hidden], weight[:hidden].clone(), eps


def outliers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with a channel 500 times the rest (float16 squares overflow), and row 0 zero: only eps is left."""
    x, weight, eps = cast(tuple[torch.Tensor, torch.Tensor, float], normal(axes, dtype, generator))
    x[:, axes["hidden_size"] // 2] *= 500
    x[0] = 0
    return x, weight, eps


def _finish(x: torch.Tensor, dtype: str, generator: torch.Generator) -> Arguments:
    weight = 1 + 0.5 * torch.randn(x.shape[-1], generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), epsilon(generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one; the last eighth of a row holds nearly all of its energy."""
    return _finish(mixed((axes["num_tokens"], axes["hidden_size"]), generator), dtype, generator)


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-14, where eps rules, and of 2^13 (float16) or 2^50, whose squares leave float16."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    large = 2.0**13 if dtype == "float16" else 2.0**50
    pick = torch.rand(axes["num_tokens"], 1, generator=generator) < 0.5
    return _finish(x.clamp(-3, 3) * torch.where(pick, 2.0**-14, large), dtype, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty rows, as ``draws.structured`` has them."""
    return _finish(structured((axes["num_tokens"], axes["hidden_size"]), generator), dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN makes its own row NaN and no other."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    return _finish(poisoned(x, generator), dtype, generator)


SPEC = Operator(
    name="rmsnorm",
    summary="y = x / sqrt(mean(x^2) + eps) * weight, over the last axis",
    signature="rmsnorm(x, weight, eps=1e-6)",
    axes=("num_tokens", "hidden_size"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size")),
        Buffer("weight", ("hidden_size",), static=True),
        Scalar("eps", 1e-6, "added to the mean square"),
    ),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # A sum of squares cannot cancel: S = |y|. c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "strided": strided,
        "outliers": outliers,
        "mixed_scale": mixed_scale,
        "extreme_rows": extreme_rows,
        "structure": structure,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "hidden_size": 127}, "float32"),
        Workload({"num_tokens": 3, "hidden_size": 2048}, "bfloat16"),
        Workload({"num_tokens": 5, "hidden_size": 4099}, "float16"),
        Workload({"num_tokens": 37, "hidden_size": 256}, "bfloat16", law="strided"),
        Workload({"num_tokens": 9, "hidden_size": 100}, "float16", law="outliers"),
        Workload({"num_tokens": 4, "hidden_size": 521}, "float32", law="outliers"),
        Workload({"num_tokens": 5, "hidden_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 6, "hidden_size": 1031}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 5, "hidden_size": 33}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 4, "hidden_size": 257}, "float32", law="extreme_rows"),
        Workload({"num_tokens": 9, "hidden_size": 127}, "bfloat16", law="structure"),
        Workload({"num_tokens": 5, "hidden_size": 31}, "float32", law="poison"),
        Workload({"num_tokens": 1, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode"),
        Workload({"num_tokens": 64, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode, batch 64"),
        Workload({"num_tokens": 4096, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 prefill"),
        Workload({"num_tokens": 18, "hidden_size": 256}, "bfloat16", use="target", note="Qwen3.6 q/k norm, decode"),
        Workload(
            {"num_tokens": 73728, "hidden_size": 256}, "bfloat16", use="target", note="Qwen3.6 q/k norm, 4096 tokens"
        ),
    ),
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019",
    baselines=("rms_norm", "rms_norm_compiled"),
)
