"""L2 normalisation of every head, as applied to q and k of a gated delta network."""

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


def reference(x: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, ...]:
    """Return x / sqrt(sum(x^2) + eps) in float64; x [num_tokens, num_heads, head_dim], the sum over head_dim."""
    wide = x.to(torch.float64)
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Three operations an element; x read once, y written once."""
    elements = axes["num_tokens"] * axes["num_heads"] * axes["head_dim"]
    return Cost(flops=3 * elements, essential_bytes=2 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-12 … 2^3: in the smallest eps = 1e-6 weighs as much as the sum, and a mean is no sum."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    scale = torch.exp2(torch.randint(-12, 4, (*shape[:2], 1), generator=generator).to(torch.float32))
    return (torch.randn(shape, generator=generator) * scale).to(DTYPES[dtype]), 1e-6


def fused_projection(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, a view into wider rows, as q and k inside the convolved q/k/v of a gated delta network."""
    x, eps = cast(tuple[torch.Tensor, float], normal(axes, dtype, generator))
    flat = x.reshape(axes["num_tokens"], -1)
    wide = torch.cat([flat, torch.zeros_like(flat)], dim=1)
    return wide[:, : flat.shape[1]].view(x.shape), eps


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-8 … 2^8 behind a nominal one; the last eighth of a head holds nearly all of its energy."""
    return mixed((axes["num_tokens"], axes["num_heads"], axes["head_dim"]), generator).to(DTYPES[dtype]), epsilon(
        generator
    )


def extreme_rows(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-14, where eps rules, and of 2^13 (float16) or 2^50, whose squares leave float16."""
    shape = (axes["num_tokens"], axes["num_heads"], axes["head_dim"])
    large = 2.0**13 if dtype == "float16" else 2.0**50
    pick = torch.rand(*shape[:2], 1, generator=generator) < 0.5
    x = torch.randn(shape, generator=generator).clamp(-3, 3)
    return (x * torch.where(pick, 2.0**-14, large)).to(DTYPES[dtype]), epsilon(generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty heads, as ``draws.structured`` has them; one head is zero."""
    x = structured((axes["num_tokens"], axes["num_heads"], axes["head_dim"]), generator)
    x[-1, -1] = 0
    return x.to(DTYPES[dtype]), epsilon(generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN makes its own head NaN and no other."""
    x = torch.randn(axes["num_tokens"], axes["num_heads"], axes["head_dim"], generator=generator)
    return poisoned(x, generator).to(DTYPES[dtype]), epsilon(generator)


SPEC = Operator(
    name="l2norm",
    summary="y = x / sqrt(sum(x^2) + eps), per head",
    signature="l2norm(x, eps=1e-6)",
    axes=("num_tokens", "num_heads", "head_dim"),
    inputs=(
        Buffer("x", ("num_tokens", "num_heads", "head_dim"), doc="the token stride is free"),
        Scalar("eps", 1e-6, "added to the sum of squares, inside the root"),
    ),
    outputs=(Buffer("y", ("num_tokens", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # A sum of squares cannot cancel: S = |y|. c_out = 2 admits a store that truncates, as Triton's interpreter does.
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
        Workload({"num_tokens": 2, "num_heads": 3, "head_dim": 127}, "bfloat16", law="extreme_rows"),
        Workload({"num_tokens": 5, "num_heads": 3, "head_dim": 65}, "float32", law="structure"),
        Workload({"num_tokens": 2, "num_heads": 4, "head_dim": 17}, "bfloat16", law="poison"),
        Workload(
            {"num_tokens": 1, "num_heads": 32, "head_dim": 128},
            "bfloat16",
            "fused_projection",
            "target",
            "Qwen3.6 q+k, decode",
        ),
        Workload(
            {"num_tokens": 4096, "num_heads": 32, "head_dim": 128}, "bfloat16", "fused_projection", "target", "prefill"
        ),
    ),
    source="Yang, Kautz and Hatamizadeh, Gated delta networks, 2024; eps inside the root as in fla.modules.l2norm",
    baselines=("rsqrt_of_sum_compiled", "rsqrt_of_sum"),
    rivals=("fla.modules.l2norm.l2norm_fwd",),
)
