"""Softmax over the last axis."""

from typing import cast

import torch

from kb.validators.operators.draws import mixed
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
    """Return exp(x - max) / sum in float64, x [num_tokens, num_classes].

    A row with a NaN or +inf, or of -inf only, is NaN throughout: the definition has no value there.
    """
    wide = x.to(torch.float64)
    if wide.shape[-1] == 0:
        return (wide,)
    power = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (power / power.sum(-1, keepdim=True),)


def condition(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = p (1 + d + sum p d), d = max - x: the error of exp(-d) is d u, that of the sum the mean of d u."""
    wide = x.to(torch.float64)
    if wide.shape[-1] == 0:
        return (wide,)
    (p,) = reference(x)
    distance = torch.where(p > 0, wide.amax(-1, keepdim=True) - wide, torch.zeros_like(wide))
    return (p * (1 + distance + (p * distance).sum(-1, keepdim=True)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Five operations an element (max, subtract, exp, add, divide); x read once, y written once."""
    elements = axes["num_tokens"] * axes["num_classes"]
    return Cost(flops=5 * elements, essential_bytes=2 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of deviation 2^-2 … 2^3 by rows, with a row offset that only the subtraction of the maximum removes."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-2, 4, (rows, 1), generator=generator).to(torch.float32))
    offset = 20 * torch.randn(rows, 1, generator=generator)
    return ((torch.randn(rows, axes["num_classes"], generator=generator) * scale + offset).to(DTYPES[dtype]),)


def masked(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with a masked (-inf) first part of every row, row 0 wholly -inf and one NaN in the last row."""
    (x,) = cast(tuple[torch.Tensor], normal(axes, dtype, generator))
    x[:, : (3 * axes["num_classes"]) // 4] = float("-inf")
    x[0] = float("-inf")
    if axes["num_tokens"] > 1:
        x[-1, axes["num_classes"] // 2] = float("nan")
    return (x,)


def large(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of deviation 2000: exp without the maximum overflows, and one class takes nearly all."""
    x = 2000 * torch.randn(axes["num_tokens"], axes["num_classes"], generator=generator)
    return (x.to(DTYPES[dtype]),)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-6 … 2^6 behind a nominal one; the last classes are 8 times the rest and hold most maxima."""
    x = mixed((axes["num_tokens"], axes["num_classes"]), generator, spread=6, tail=3)
    return (x.to(DTYPES[dtype]),)


def clustered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Few different values a row: many classes share the maximum, some rows are constant, -0 equals 0."""
    rows = axes["num_tokens"]
    kinds = torch.randint(1, 4, (rows, 1), generator=generator)
    x = torch.randint(0, 12, (rows, axes["num_classes"]), generator=generator) % kinds * -3.0
    return ((x + torch.randint(-60, 60, (rows, 1), generator=generator)).to(DTYPES[dtype]),)


def late_maximum(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rising rows: an online maximum changes in every block, and the first blocks vanish beside the last."""
    x = torch.randn(axes["num_tokens"], axes["num_classes"], generator=generator)
    rise = torch.linspace(0, 60, axes["num_classes"])
    return ((x + rise).to(DTYPES[dtype]),)


SPEC = Operator(
    name="softmax",
    summary="y = exp(x - max x) / sum exp(x - max x), over the last axis",
    signature="softmax(x)",
    axes=("num_tokens", "num_classes"),
    inputs=(Buffer("x", ("num_tokens", "num_classes")),),
    outputs=(Buffer("y", ("num_tokens", "num_classes")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # Hardware exp: 4 u + 3 d u (subtraction, scaling by log2 e); sum and division a few u. c_out = 2: truncating store.
    error=ErrorModel(accumulate="float32", c_acc=16, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "masked": masked,
        "large": large,
        "mixed_scale": mixed_scale,
        "clustered": clustered,
        "late_maximum": late_maximum,
    },
    workloads=(
        Workload({"num_tokens": 1, "num_classes": 1}, "float32"),
        Workload({"num_tokens": 0, "num_classes": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "num_classes": 127}, "float32"),
        Workload({"num_tokens": 5, "num_classes": 256}, "float32", law="large"),
        Workload({"num_tokens": 4, "num_classes": 97}, "float32", law="masked"),
        Workload({"num_tokens": 3, "num_classes": 9001}, "float32", law="masked"),
        Workload({"num_tokens": 2, "num_classes": 20011}, "float32", law="large"),
        Workload({"num_tokens": 2, "num_classes": 33001}, "bfloat16"),
        Workload({"num_tokens": 3, "num_classes": 1000}, "float16"),
        Workload({"num_tokens": 5, "num_classes": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 6, "num_classes": 1000}, "float16", law="mixed_scale"),
        Workload({"num_tokens": 7, "num_classes": 33}, "float32", law="clustered"),
        Workload({"num_tokens": 3, "num_classes": 257}, "bfloat16", law="clustered"),
        Workload({"num_tokens": 2, "num_classes": 4097}, "float32", law="late_maximum"),
        Workload({"num_tokens": 3, "num_classes": 127}, "bfloat16", law="masked"),
        Workload({"num_tokens": 4096, "num_classes": 256}, "float32", use="target", note="Qwen3.6 router, prefill"),
        Workload({"num_tokens": 1, "num_classes": 248320}, "float32", use="target", note="Qwen3.6 sampling, batch 1"),
        Workload({"num_tokens": 64, "num_classes": 248320}, "float32", use="target", note="Qwen3.6 sampling, batch 64"),
        Workload({"num_tokens": 4096, "num_classes": 8192}, "bfloat16", use="target", note="generic long rows"),
    ),
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; torch.softmax",
    baselines=("softmax", "softmax_compiled"),
)
