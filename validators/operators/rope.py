"""Rotary position embedding of q and k, on the first rotary_dim of every head (half-split pairs)."""

from typing import cast

import torch

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

THETA = 1e7
"""Base of the angles drawn by the laws, that of Qwen3.6; the operator itself takes a table."""


def _terms(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the halves x1 and x2 to be rotated, the untouched rest, and cos and sin, all float64."""
    half = table.shape[1] // 2
    wide, angles = x.to(torch.float64), table.to(torch.float64)[positions][:, None, :]
    return wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :], angles[..., :half], angles[..., half:]


def rotate(x: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return x [num_tokens, heads, head_dim] rotated, in float64."""
    first, second, rest, cos, sin = _terms(x, cos_sin_cache, positions)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def rotation_scale(x: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return S of ``rotate``: sqrt of the two squared products, because their difference cancels."""
    first, second, rest, cos, sin = _terms(x, cos_sin_cache, positions)
    return torch.cat(
        [torch.hypot(first * cos, second * sin), torch.hypot(second * cos, first * sin), rest.abs()], dim=-1
    )


def reference(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return q and k rotated, in float64; shapes as in ``SPEC.inputs``."""
    return rotate(q, cos_sin_cache, positions), rotate(k, cos_sin_cache, positions)


def condition(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S of both outputs, as ``rotation_scale`` says."""
    return rotation_scale(q, cos_sin_cache, positions), rotation_scale(k, cos_sin_cache, positions)


def cost(axes: Axes, dtype: str) -> Cost:
    """Three operations a rotated element; q and k read and written once, a table row (float32) and an int64 a token."""
    tokens, heads = axes["num_tokens"], axes["num_heads"] + axes["num_kv_heads"]
    moved = 2 * tokens * heads * axes["head_dim"] * itemsize(dtype)
    return Cost(
        flops=3 * tokens * heads * axes["rotary_dim"], essential_bytes=moved + tokens * (4 * axes["rotary_dim"] + 8)
    )


def cos_sin_table(axes: Axes) -> torch.Tensor:
    """Return cos and sin of position * THETA^(-2 i / rotary_dim), [max_position, rotary_dim] float32, cos first."""
    rotary = axes["rotary_dim"]
    frequency = THETA ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    angle = torch.arange(axes["max_position"], dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1).to(torch.float32)


def fused_qkv(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Random positions; q and k are views into one [num_tokens, (q + k + v heads) * head_dim] projection."""
    tokens, dim = axes["num_tokens"], axes["head_dim"]
    heads, kv_heads = axes["num_heads"], axes["num_kv_heads"]
    scale = torch.exp2(torch.randint(-2, 3, (tokens, 1), generator=generator).to(torch.float32))
    flat = (torch.randn(tokens, (heads + 2 * kv_heads) * dim, generator=generator) * scale).to(DTYPES[dtype])
    qkv = flat.view(tokens, heads + 2 * kv_heads, dim)
    positions = torch.randint(0, axes["max_position"], (tokens,), generator=generator)
    return qkv[:, :heads], qkv[:, heads : heads + kv_heads], cos_sin_table(axes), positions


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``fused_qkv``, with q and k contiguous."""
    q, k, table, positions = cast(
        tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], fused_qkv(axes, dtype, generator)
    )
    return q.contiguous(), k.contiguous(), table, positions


_AXES = ("num_tokens", "num_heads", "num_kv_heads", "head_dim", "rotary_dim", "max_position")


def _workload(
    sizes: tuple[int, ...], dtype: str, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="rope",
    summary="[x1, x2, rest] -> [x1 cos - x2 sin, x2 cos + x1 sin, rest], x1 and x2 the halves of the first rotary_dim",
    signature="rope(q, k, cos_sin_cache, positions)",
    axes=_AXES,
    inputs=(
        Buffer("q", ("num_tokens", "num_heads", "head_dim"), doc="the token stride is free"),
        Buffer("k", ("num_tokens", "num_kv_heads", "head_dim"), doc="the token stride is free"),
        Buffer(
            "cos_sin_cache", ("max_position", "rotary_dim"), "float32", "a row: rotary_dim/2 cosines, then sines", True
        ),
        Buffer("positions", ("num_tokens",), "int64", "row of the table for each token"),
    ),
    outputs=(
        Buffer("q_out", ("num_tokens", "num_heads", "head_dim")),
        Buffer("k_out", ("num_tokens", "num_kv_heads", "head_dim")),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # Two products and a sum: at most (sqrt(2) + 1) u S; three times that is free. Products rounded to bfloat16 fail
    # where they cancel. c_out = 2 admits a store that truncates, as Triton's interpreter does for bfloat16.
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
    cost=cost,
    laws={"normal": normal, "fused_qkv": fused_qkv},
    workloads=(
        _workload((1, 1, 1, 2, 2, 1), "float32"),
        _workload((0, 4, 2, 64, 64, 16), "bfloat16"),
        _workload((5, 3, 1, 22, 14, 100), "float32"),
        _workload((3, 16, 2, 256, 64, 4096), "bfloat16", "fused_qkv"),
        _workload((7, 5, 3, 64, 64, 300), "float16", "fused_qkv"),
        _workload((2, 4, 4, 80, 40, 1000), "bfloat16"),
        _workload((1, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 decode"),
        _workload((64, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 decode, batch 64"),
        _workload((4096, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 prefill"),
    ),
    source="Su et al., RoFormer, 2021; half-split pairs and cos_sin_cache as in vLLM's rotary_embedding (neox style)",
    baselines=("flashinfer.rope.apply_rope_with_cos_sin_cache", "vllm rotary_embedding"),
)
