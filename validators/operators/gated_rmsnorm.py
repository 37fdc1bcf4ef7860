"""Gated RMSNorm: every head normalised and weighted, then multiplied by the SiLU of a gate."""

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


def reference(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return rmsnorm(x) * weight * silu(gate) in float64.

    x and gate [num_tokens, num_heads, head_dim], weight [head_dim]; the mean square is over head_dim, before gating.
    """
    wide, z = x.to(torch.float64), gate.to(torch.float64)
    normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(torch.float64)
    return (normalised * z / (1 + torch.exp(-z)),)


def condition(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return S = |y| (1 + |gate| (1 - sigmoid gate)): exp turns a relative error of gate into |gate| times as much."""
    z = gate.to(torch.float64)
    (y,) = reference(x, gate, weight, eps)
    return (y.abs() * (1 + z.abs() * (1 - torch.sigmoid(z))),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Nine operations an element; x and gate read once, y written once, weight read once."""
    elements = axes["num_tokens"] * axes["num_heads"] * axes["head_dim"]
    return Cost(flops=9 * elements, essential_bytes=(3 * elements + axes["head_dim"]) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-4 … 2^4, so that one norm a token is wrong; gates of deviation 2; weights around 1."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    scale = torch.exp2(torch.randint(-4, 5, (*shape[:2], 1), generator=generator).to(torch.float32))
    x = torch.randn(shape, generator=generator) * scale
    gate = 2 * torch.randn(shape, generator=generator)
    weight = 1 + 0.5 * torch.randn(shape[2], generator=generator)
    return x.to(DTYPES[dtype]), gate.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), 1e-6


def fused_projection(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with gate a view into wider rows, as the z part of a fused q/k/v/z projection."""
    x, gate, weight, eps = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor, float], normal(axes, dtype, generator))
    flat = gate.reshape(axes["num_tokens"], -1)
    wide = torch.cat([torch.zeros_like(flat), flat], dim=1)
    return x, wide[:, flat.shape[1] :].view(gate.shape), weight, eps


def _finish(x: torch.Tensor, gate: torch.Tensor, dtype: str, generator: torch.Generator) -> Arguments:
    weight = 1 + 0.5 * torch.randn(x.shape[-1], generator=generator)
    return x.to(DTYPES[dtype]), gate.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), epsilon(generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-8 … 2^8 and gates of 2^-3 … 2^3 behind nominal ones, the last channels larger."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    x, gate = mixed(shape, generator), mixed(shape, generator, spread=3, tail=1)
    return _finish(x, gate, dtype, generator)


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-14 or 2^13 (float16), 2^50; gates of -120 … 120, where exp overflows and silu fades."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    large = 2.0**13 if dtype == "float16" else 2.0**50
    pick = torch.rand(*shape[:2], 1, generator=generator) < 0.5
    x = torch.randn(shape, generator=generator).clamp(-3, 3) * torch.where(pick, 2.0**-14, large)
    return _finish(x, (torch.rand(shape, generator=generator) - 0.5) * 240, dtype, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty heads, as ``draws.structured`` has them; so are the gates."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    return _finish(structured(shape, generator), structured(shape, generator), dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN of x makes its own head NaN, a NaN of the gate its own element, and no other."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    x, gate = (poisoned(torch.randn(shape, generator=generator), generator) for _ in range(2))
    return _finish(x, gate, dtype, generator)


SPEC = Operator(
    name="gated_rmsnorm",
    summary="y = x / sqrt(mean(x^2) + eps) * weight * silu(gate), per head",
    signature="gated_rmsnorm(x, gate, weight, eps=1e-6)",
    axes=("num_tokens", "num_heads", "head_dim"),
    inputs=(
        Buffer("x", ("num_tokens", "num_heads", "head_dim"), doc="output of the linear attention"),
        Buffer("gate", ("num_tokens", "num_heads", "head_dim"), doc="z, before SiLU; the token stride is free"),
        Buffer("weight", ("head_dim",), static=True, doc="shared by all heads; plain w here, not w - 1"),
        Scalar("eps", 1e-6, "added to the mean square"),
    ),
    outputs=(Buffer("y", ("num_tokens", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does for bfloat16.
    error=ErrorModel(accumulate="float32", c_acc=64, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "fused_projection": fused_projection,
        "mixed_scale": mixed_scale,
        "extreme_rows": extreme_rows,
        "structure": structure,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "num_heads": 1, "head_dim": 1}, "float32"),
        Workload({"num_tokens": 0, "num_heads": 4, "head_dim": 64}, "bfloat16"),
        Workload({"num_tokens": 7, "num_heads": 3, "head_dim": 61}, "float32"),
        Workload({"num_tokens": 2, "num_heads": 32, "head_dim": 128}, "bfloat16"),
        Workload({"num_tokens": 3, "num_heads": 5, "head_dim": 128}, "bfloat16", law="fused_projection"),
        Workload({"num_tokens": 5, "num_heads": 2, "head_dim": 257}, "float16"),
        Workload({"num_tokens": 3, "num_heads": 5, "head_dim": 129}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 5, "num_heads": 2, "head_dim": 31}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 3, "num_heads": 4, "head_dim": 33}, "float16", law="extreme_rows"),
        Workload({"num_tokens": 2, "num_heads": 3, "head_dim": 127}, "float32", law="extreme_rows"),
        Workload({"num_tokens": 5, "num_heads": 3, "head_dim": 65}, "bfloat16", law="structure"),
        Workload({"num_tokens": 2, "num_heads": 4, "head_dim": 17}, "bfloat16", law="poison"),
        Workload(
            {"num_tokens": 1, "num_heads": 32, "head_dim": 128}, "bfloat16", use="target", note="Qwen3.6 GDN decode"
        ),
        Workload(
            {"num_tokens": 64, "num_heads": 32, "head_dim": 128}, "bfloat16", "fused_projection", "target", "decode 64"
        ),
        Workload(
            {"num_tokens": 4096, "num_heads": 32, "head_dim": 128}, "bfloat16", "fused_projection", "target", "prefill"
        ),
    ),
    source="Yang, Kautz and Hatamizadeh, Gated delta networks, 2024; transformers Qwen3_5RMSNormGated",
    baselines=("rms_norm_silu_mul_compiled", "rms_norm_silu_mul"),
    rivals=("fla.modules.FusedRMSNormGated", "vllm RMSNormGated (Triton)"),
)
