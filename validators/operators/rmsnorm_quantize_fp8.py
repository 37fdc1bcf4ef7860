"""RMSNorm followed by per-token FP8 quantisation, in one pass."""

from typing import cast

import torch

from kb.validators.operators.draws import epsilon, mixed, structured
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

FP8_MAX = 448.0
"""Largest finite float8_e4m3fn."""
AMAX_FLOOR = 1e-10
"""A row whose largest magnitude is below this keeps the scale AMAX_FLOOR / FP8_MAX, so that zeros stay finite."""


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return (y / scale, scale) in float64, not rounded to FP8.

    x [num_tokens, hidden_size], weight [hidden_size]; y = rmsnorm(x) * weight, never rounded to the storage dtype;
    scale [num_tokens] = max(amax of |y|, AMAX_FLOOR) / FP8_MAX. The quotient stays unrounded so that at a tie both
    neighbours, each half a step away, pass, whichever way the last bit of the scale tips it.
    """
    wide = x.to(torch.float64)
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(torch.float64)
    scale = y.abs().amax(-1).clamp(min=AMAX_FLOOR) / FP8_MAX
    return y / scale[:, None], scale


def cost(axes: Axes, dtype: str) -> Cost:
    """Seven operations an element; x and weight read, a byte an element and a float32 a token written."""
    tokens, hidden = axes["num_tokens"], axes["hidden_size"]
    size = itemsize(dtype)
    return Cost(flops=7 * tokens * hidden, essential_bytes=(tokens + 1) * hidden * size + tokens * hidden + 4 * tokens)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^4 and weights around 1."""
    rows, hidden = axes["num_tokens"], axes["hidden_size"]
    scale = torch.exp2(torch.randint(-4, 5, (rows, 1), generator=generator).to(torch.float32))
    x = torch.randn(rows, hidden, generator=generator) * scale
    weight = 1 + 0.5 * torch.randn(hidden, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), 1e-6


def outliers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with one channel 200 times the rest (most values land in FP8 subnormals) and a row of zeros."""
    x, weight, eps = cast(tuple[torch.Tensor, torch.Tensor, float], normal(axes, dtype, generator))
    x[:, axes["hidden_size"] // 2] *= 200
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


SPEC = Operator(
    name="rmsnorm_quantize_fp8",
    summary="y = rmsnorm(x) * weight; scale = amax of a token's |y| / 448; q = y / scale in float8_e4m3fn",
    signature="rmsnorm_quantize_fp8(x, weight, eps=1e-6)",
    axes=("num_tokens", "hidden_size"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size")),
        Buffer("weight", ("hidden_size",), static=True),
        Scalar("eps", 1e-6, "added to the mean square"),
    ),
    outputs=(
        Buffer("q", ("num_tokens", "hidden_size"), dtype="float8_e4m3fn", doc="y is about q * scale"),
        Buffer("scale", ("num_tokens",), dtype="float32", doc="multiply q by it"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # c_out = 1: round to nearest, no more; truncation errs by up to 2 u(e4m3) and fails. 65 u(float32) on the scale
    # refuses a y that was rounded to bfloat16 first (2^-9).
    error=ErrorModel(accumulate="float32", c_acc=64, c_out=1),
    cost=cost,
    laws={
        "normal": normal,
        "outliers": outliers,
        "mixed_scale": mixed_scale,
        "extreme_rows": extreme_rows,
        "structure": structure,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "hidden_size": 127}, "float32"),
        Workload({"num_tokens": 3, "hidden_size": 2048}, "bfloat16"),
        Workload({"num_tokens": 5, "hidden_size": 515}, "float16", law="outliers"),
        Workload({"num_tokens": 4, "hidden_size": 320}, "bfloat16", law="outliers"),
        Workload({"num_tokens": 5, "hidden_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 6, "hidden_size": 514}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 5, "hidden_size": 33}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 4, "hidden_size": 257}, "float32", law="extreme_rows"),
        Workload({"num_tokens": 9, "hidden_size": 127}, "bfloat16", law="structure"),
        Workload({"num_tokens": 1, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode"),
        Workload({"num_tokens": 64, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode, batch 64"),
        Workload({"num_tokens": 4096, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 prefill"),
    ),
    source="Zhang and Sennrich, 2019; dynamic per-token FP8 scaling as served by vLLM",
    baselines=("rms_norm_quantise_compiled", "rms_norm_quantise"),
    rivals=("vllm rms_norm_dynamic_per_token_quant",),
)
