"""Dynamic FP8 quantisation with one scale a row."""

from typing import cast

import torch

from kb.validators.operators.draws import mixed, structured
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

FP8_MAX = 448.0
"""Largest finite float8_e4m3fn."""
AMAX_FLOOR = 1e-10
"""A row whose largest magnitude is below this keeps the scale AMAX_FLOOR / FP8_MAX, so that zeros stay finite."""


def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (x / scale, scale) in float64, not rounded to FP8; x [num_tokens, hidden_size], scale [num_tokens].

    scale = max(amax of a row's |x|, AMAX_FLOOR) / FP8_MAX. The quotient stays unrounded so that at a tie both
    neighbours, each half a step away, pass, whichever way the last bit of the scale tips it.
    """
    wide = x.to(torch.float64)
    scale = wide.abs().amax(-1).clamp(min=AMAX_FLOOR) / FP8_MAX
    return wide / scale[:, None], scale


def cost(axes: Axes, dtype: str) -> Cost:
    """Three operations an element (amax, multiply, round); x read, a byte an element and a float32 a row written."""
    tokens, elements = axes["num_tokens"], axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=3 * elements, essential_bytes=elements * (itemsize(dtype) + 1) + 4 * tokens)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-6 … 2^6, so that one scale for the whole tensor is wrong."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-6, 7, (rows, 1), generator=generator).to(torch.float32))
    return ((torch.randn(rows, axes["hidden_size"], generator=generator) * scale).to(DTYPES[dtype]),)


def outliers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with one channel 100 times the rest (many values land in FP8 subnormals) and a zero row."""
    (x,) = cast(tuple[torch.Tensor], normal(axes, dtype, generator))
    x[:, axes["hidden_size"] // 3] *= 100
    x[0] = 0
    return (x,)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one; the last eighth of a row decides its scale."""
    return (mixed((axes["num_tokens"], axes["hidden_size"]), generator).to(DTYPES[dtype]),)


def ties(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows with a power of two as scale: midpoints between FP8 numbers, and FP8 subnormals."""
    shape = (axes["num_tokens"], axes["hidden_size"])
    exponent = torch.randint(-6, 9, shape, generator=generator).to(torch.float32)
    x = (8 + torch.randint(0, 8, shape, generator=generator) + 0.5) * torch.exp2(exponent - 3)
    small = torch.randint(-7, 8, shape, generator=generator) * 2.0**-10
    x = torch.where(torch.rand(shape, generator=generator) < 0.7, x, small).clamp(max=448)
    sign = 1 - 2 * torch.randint(0, 2, shape, generator=generator)
    x[:, -1] = 448
    size = torch.exp2(torch.randint(-8, 0, (shape[0], 1), generator=generator).to(torch.float32))
    return ((x * sign * size).to(DTYPES[dtype]),)


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of 2^-60 (below the floor of the scale; subnormal in float16) and of 2^100 (float16: 2^14)."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator).clamp(-3, 3)
    small, large = (2.0**-18, 2.0**14) if dtype == "float16" else (2.0**-60, 2.0**100)
    pick = torch.rand(axes["num_tokens"], 1, generator=generator) < 0.5
    return ((x * torch.where(pick, small, large)).to(DTYPES[dtype]),)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty rows, as ``draws.structured`` has them."""
    return (structured((axes["num_tokens"], axes["hidden_size"]), generator).to(DTYPES[dtype]),)


SPEC = Operator(
    name="quantize_fp8",
    summary="scale = amax of a row's |x| / 448; q = x / scale, rounded to nearest in float8_e4m3fn",
    signature="quantize_fp8(x)",
    axes=("num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens", "hidden_size"), doc="groups of 128: pass x.view(-1, 128)"),),
    outputs=(
        Buffer("q", ("num_tokens", "hidden_size"), dtype="float8_e4m3fn", doc="x is about q * scale"),
        Buffer("scale", ("num_tokens",), dtype="float32", doc="multiply q by it"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # c_out = 1: round to nearest, no more; truncation errs by up to 2 u(e4m3) and fails. 8 u(float32) leaves room for
    # a reciprocal in place of a division, and binds the scale to 9 u(float32): a power-of-two scale fails.
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=1),
    cost=cost,
    laws={
        "normal": normal,
        "outliers": outliers,
        "mixed_scale": mixed_scale,
        "ties": ties,
        "extreme_rows": extreme_rows,
        "structure": structure,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "hidden_size": 127}, "float32"),
        Workload({"num_tokens": 19, "hidden_size": 128}, "bfloat16", law="outliers"),
        Workload({"num_tokens": 3, "hidden_size": 2048}, "bfloat16"),
        Workload({"num_tokens": 5, "hidden_size": 515}, "float16", law="outliers"),
        Workload({"num_tokens": 2, "hidden_size": 9001}, "float32"),
        Workload({"num_tokens": 5, "hidden_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 3, "hidden_size": 127}, "float32", law="ties"),
        Workload({"num_tokens": 3, "hidden_size": 130}, "bfloat16", law="ties"),
        Workload({"num_tokens": 6, "hidden_size": 33}, "float32", law="extreme_rows"),
        Workload({"num_tokens": 5, "hidden_size": 17}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 9, "hidden_size": 65}, "bfloat16", law="structure"),
        Workload({"num_tokens": 1, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode"),
        Workload({"num_tokens": 4096, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 prefill"),
        Workload(
            {"num_tokens": 4096, "hidden_size": 4096},
            "bfloat16",
            use="target",
            note="Qwen3.6 before the output projection",
        ),
        Workload(
            {"num_tokens": 65536, "hidden_size": 128}, "bfloat16", use="target", note="1 x 128 groups of 4096 x 2048"
        ),
    ),
    source="Micikevicius et al., FP8 formats for deep learning, 2022; dynamic per-token scaling as served by vLLM",
    baselines=("amax_divide_compiled", "amax_divide"),
    rivals=("vllm dynamic_per_token_scaled_fp8_quant",),
)
