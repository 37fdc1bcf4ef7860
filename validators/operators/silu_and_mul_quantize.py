"""SwiGLU activation followed by per-token FP8 quantisation, in one pass."""

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
    """Return (h / scale, scale) in float64, not rounded to FP8.

    x [num_tokens, 2 * intermediate_size], gate first; h = silu(gate) * up, never rounded to the storage dtype;
    scale [num_tokens] = max(amax of |h|, AMAX_FLOOR) / FP8_MAX. The quotient is left unrounded on purpose: the bound
    then asks for the nearest FP8 number, and at a tie either neighbour is half a step away and both pass, whichever
    way the last bit of the scale tips it.
    """
    gate, up = x.to(torch.float64).chunk(2, dim=-1)
    h = gate / (1 + torch.exp(-gate)) * up
    scale = h.abs().amax(-1).clamp(min=AMAX_FLOOR) / FP8_MAX
    return h / scale[:, None], scale


def condition(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S of both outputs from the float32 error of h, |h| (1 + |gate| (1 - sigmoid gate))."""
    gate, up = x.to(torch.float64).chunk(2, dim=-1)
    quotient, scale = reference(x)
    sigmoid = torch.sigmoid(gate)
    error = (gate * sigmoid * up).abs() * (1 + gate.abs() * (1 - sigmoid))
    scale_error = torch.maximum(error.amax(-1) / FP8_MAX, scale)
    return error / scale[:, None] + quotient.abs() * (scale_error / scale)[:, None], scale_error


def cost(axes: Axes, dtype: str) -> Cost:
    """Seven operations an output element; 2 I read in the dtype, I bytes and one float32 scale written a token."""
    tokens, elements = axes["num_tokens"], axes["num_tokens"] * axes["intermediate_size"]
    return Cost(flops=7 * elements, essential_bytes=2 * elements * itemsize(dtype) + elements + 4 * tokens)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-3 … 2^3, so that one scale for the whole tensor is wrong."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-3, 4, (rows, 1), generator=generator).to(torch.float32))
    x = torch.randn(rows, 2 * axes["intermediate_size"], generator=generator) * scale
    return (x.to(DTYPES[dtype]),)


def zero_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with every second row zero (the padding of a fused MoE): no division by a zero scale."""
    (x,) = cast(tuple[torch.Tensor], normal(axes, dtype, generator))
    x[::2] = 0
    return (x,)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-4 … 2^4 behind a nominal one; the last channels of gate and up decide a row's scale."""
    shape = (axes["num_tokens"], axes["intermediate_size"])
    x = torch.cat([mixed(shape, generator, spread=4, tail=2) for _ in range(2)], dim=1)
    return (x.to(DTYPES[dtype]),)


def closed_gates(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gates of -120 … 20, most of them shut: exp overflows float32 where nothing is left of the product."""
    shape = (axes["num_tokens"], axes["intermediate_size"])
    gate = 140 * torch.rand(shape, generator=generator) - 120
    return (torch.cat([gate, torch.randn(shape, generator=generator)], dim=1).to(DTYPES[dtype]),)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gate and up are constant, sorted, paired and nearly empty rows, as ``draws.structured`` has them."""
    shape = (axes["num_tokens"], axes["intermediate_size"])
    return (torch.cat([structured(shape, generator) for _ in range(2)], dim=1).to(DTYPES[dtype]),)


SPEC = Operator(
    name="silu_and_mul_quantize",
    summary="h = silu(gate) * up; scale = amax of a token's |h| / 448; q = h / scale in float8_e4m3fn",
    signature="silu_and_mul_quantize(x)",
    axes=("num_tokens", "intermediate_size"),
    inputs=(
        Buffer("x", ("num_tokens", "2*intermediate_size"), doc="gate in the first half of a row, up in the second"),
    ),
    outputs=(
        Buffer("q", ("num_tokens", "intermediate_size"), dtype="float8_e4m3fn", doc="h is about q * scale"),
        Buffer("scale", ("num_tokens",), dtype="float32", doc="multiply q by it"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # c_out = 1: round to nearest, no more. Truncation errs by up to 2 u(e4m3) and fails. The scale, a float32
    # output, is bound to about 17 u(float32): a bfloat16 detour of h moves it by 2^-9 and fails.
    error=ErrorModel(accumulate="float32", c_acc=16, c_out=1),
    cost=cost,
    laws={
        "normal": normal,
        "zero_rows": zero_rows,
        "mixed_scale": mixed_scale,
        "closed_gates": closed_gates,
        "structure": structure,
    },
    workloads=(
        Workload({"num_tokens": 1, "intermediate_size": 1}, "float32"),
        Workload({"num_tokens": 0, "intermediate_size": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "intermediate_size": 127}, "float32"),
        Workload({"num_tokens": 5, "intermediate_size": 331}, "float16"),
        Workload({"num_tokens": 8, "intermediate_size": 512}, "bfloat16"),
        Workload({"num_tokens": 6, "intermediate_size": 80}, "bfloat16", law="zero_rows"),
        Workload({"num_tokens": 5, "intermediate_size": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 17, "intermediate_size": 33}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 3, "intermediate_size": 127}, "float32", law="closed_gates"),
        Workload({"num_tokens": 2, "intermediate_size": 65}, "float16", law="closed_gates"),
        Workload({"num_tokens": 8, "intermediate_size": 31}, "bfloat16", law="structure"),
        Workload({"num_tokens": 8, "intermediate_size": 512}, "bfloat16", use="target", note="Qwen3.6 top-8, decode 1"),
        Workload(
            {"num_tokens": 32768, "intermediate_size": 512}, "bfloat16", use="target", note="Qwen3.6 top-8, 4096 tokens"
        ),
    ),
    source="Micikevicius et al., FP8 formats for deep learning, 2022; dynamic per-token scaling as served by vLLM",
    baselines=("silu_mul_quantise_compiled", "silu_mul_quantise"),
    rivals=("vllm silu_and_mul + dynamic_per_token_scaled_fp8_quant",),
)
