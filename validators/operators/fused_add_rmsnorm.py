"""Residual add and RMSNorm in one pass, as at the start of every transformer block."""

from typing import cast

import torch

from kb.validators.operators.draws import epsilon, mixed, structured
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


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, ...]:
    """Return (rmsnorm(x + residual) * weight, x + residual) in float64.

    x and residual [num_tokens, hidden_size], weight [hidden_size].
    """
    total = x.to(torch.float64) + residual.to(torch.float64)
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight.to(torch.float64), total


def condition(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, ...]:
    """Return S of both outputs: |y| widened by two roundings of the storage dtype, and |residual_out|.

    Two conventions are in production: normalise the float32 sum, or the sum already rounded to the storage dtype.
    Rounding first moves an element by u and the root mean square by at most u, hence 2 u(dtype) |y|, expressed here
    in units of c_acc * u(float32). Where the normalised row is rounded too before it is weighted, the weight
    multiplies what is lost near zero.
    """
    y, total = reference(x, residual, weight, eps)
    name, unit = str(x.dtype).removeprefix("torch."), C_ACC * UNIT_ROUNDOFF["float32"]
    lost = weight.to(torch.float64).abs() * UNDERFLOW[name]
    return y.abs() * (1 + 2 * UNIT_ROUNDOFF[name] / unit) + lost / unit, total.abs()


def cost(axes: Axes, dtype: str) -> Cost:
    """Five operations an element; x and residual read once, y and residual_out written once, weight read once."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=5 * elements, essential_bytes=(4 * elements + axes["hidden_size"]) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Draw x of row scale 2^-3 … 2^3 on a residual stream of scale 4, weights around 1."""
    rows, hidden = axes["num_tokens"], axes["hidden_size"]
    scale = torch.exp2(torch.randint(-3, 4, (rows, 1), generator=generator).to(torch.float32))
    x = torch.randn(rows, hidden, generator=generator) * scale
    residual = 4 * torch.randn(rows, hidden, generator=generator)
    weight = 1 + 0.5 * torch.randn(hidden, generator=generator)
    return x.to(DTYPES[dtype]), residual.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), 1e-6


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with x and residual slices of wider rows of different strides."""
    hidden = axes["hidden_size"]
    x, residual, weight, eps = cast(
        tuple[torch.Tensor, torch.Tensor, torch.Tensor, float],
        normal({**axes, "hidden_size": hidden + 24}, dtype, generator),
    )
    return x[:, :hidden], residual.repeat(1, 2)[:, 7 : 7 + hidden], weight[:hidden].clone(), eps


def _finish(x: torch.Tensor, residual: torch.Tensor, dtype: str, generator: torch.Generator) -> Arguments:
    weight = 1 + 0.5 * torch.randn(x.shape[-1], generator=generator)
    return x.to(DTYPES[dtype]), residual.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), epsilon(generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of both inputs of scale 2^-8 … 2^8 behind nominal ones; the last eighth holds nearly all energy."""
    shape = (axes["num_tokens"], axes["hidden_size"])
    return _finish(mixed(shape, generator), mixed(shape, generator), dtype, generator)


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A block that takes back most of the residual: the sum is 2^-6 of its terms, and exact in no 8-bit format."""
    residual = 8 * torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    x = -residual * (1 + 2**-6 * torch.randn(residual.shape, generator=generator))
    return _finish(x, residual, dtype, generator)


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-14, where eps rules, and of 2^12 (float16) or 2^50, whose squares leave float16."""
    shape = (axes["num_tokens"], axes["hidden_size"])
    large = 2.0**12 if dtype == "float16" else 2.0**50
    scale = torch.where(torch.rand(shape[0], 1, generator=generator) < 0.5, 2.0**-14, large)
    x, residual = (torch.randn(shape, generator=generator).clamp(-3, 3) * scale for _ in range(2))
    return _finish(x, residual, dtype, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty rows on a residual of the same sorts."""
    shape = (axes["num_tokens"], axes["hidden_size"])
    return _finish(structured(shape, generator), structured(shape, generator), dtype, generator)


SPEC = Operator(
    name="fused_add_rmsnorm",
    summary="residual_out = x + residual; y = residual_out / sqrt(mean(residual_out^2) + eps) * weight",
    signature="fused_add_rmsnorm(x, residual, weight, eps=1e-6)",
    axes=("num_tokens", "hidden_size"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size"), doc="output of the previous block"),
        Buffer("residual", ("num_tokens", "hidden_size"), doc="residual stream"),
        Buffer("weight", ("hidden_size",), static=True),
        Scalar("eps", 1e-6, "added to the mean square"),
    ),
    outputs=(
        Buffer("y", ("num_tokens", "hidden_size")),
        Buffer("residual_out", ("num_tokens", "hidden_size"), doc="x + residual, rounded once"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does for bfloat16.
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "cancelling": cancelling,
        "extreme_rows": extreme_rows,
        "structure": structure,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "hidden_size": 127}, "float32"),
        Workload({"num_tokens": 3, "hidden_size": 2048}, "bfloat16"),
        Workload({"num_tokens": 5, "hidden_size": 4099}, "float16"),
        Workload({"num_tokens": 4, "hidden_size": 264}, "bfloat16", law="strided"),
        Workload({"num_tokens": 3, "hidden_size": 65}, "float32", law="strided"),
        Workload({"num_tokens": 5, "hidden_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 6, "hidden_size": 514}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 3, "hidden_size": 130}, "bfloat16", law="cancelling"),
        Workload({"num_tokens": 3, "hidden_size": 127}, "float32", law="cancelling"),
        Workload({"num_tokens": 5, "hidden_size": 33}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 9, "hidden_size": 31}, "bfloat16", law="structure"),
        Workload({"num_tokens": 1, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode"),
        Workload({"num_tokens": 64, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 decode, batch 64"),
        Workload({"num_tokens": 4096, "hidden_size": 2048}, "bfloat16", use="target", note="Qwen3.6 prefill"),
    ),
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019; vLLM fused_add_rms_norm",
    baselines=("add_rms_norm_compiled", "add_rms_norm"),
    rivals=("flashinfer.norm.fused_add_rmsnorm", "vllm fused_add_rms_norm"),
)
