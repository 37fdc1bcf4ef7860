"""Rotary position embedding of q and k, on the first rotary_dim of every head (half-split pairs)."""

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


def _finish(q: torch.Tensor, k: torch.Tensor, axes: Axes, dtype: str, positions: torch.Tensor) -> Arguments:
    return q.to(DTYPES[dtype]), k.to(DTYPES[dtype]), cos_sin_table(axes), positions


def _shapes(axes: Axes) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    tokens, dim = axes["num_tokens"], axes["head_dim"]
    return (tokens, axes["num_heads"], dim), (tokens, axes["num_kv_heads"], dim)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-6 … 2^6 behind a nominal one; the last channels, rotated or not, are 16 times the rest."""
    q, k = (mixed(shape, generator, spread=6) for shape in _shapes(axes))
    positions = torch.randint(0, axes["max_position"], (axes["num_tokens"],), generator=generator)
    return _finish(q, k, axes, dtype, positions)


def edge_positions(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Positions 0 (no rotation at all), the last one and its neighbour, many of them repeated."""
    q, k = (torch.randn(shape, generator=generator) for shape in _shapes(axes))
    last = axes["max_position"] - 1
    edges = torch.tensor([0, min(1, last), max(last - 1, 0), last])
    return _finish(q, k, axes, dtype, edges[torch.randint(0, 4, (axes["num_tokens"],), generator=generator)])


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The two halves are such that x1 cos is nearly x2 sin, or x2 cos nearly -x1 sin: the products must not round."""
    positions = torch.randint(0, axes["max_position"], (axes["num_tokens"],), generator=generator)
    half = axes["rotary_dim"] // 2
    angles = cos_sin_table(axes)[positions][:, None, :]
    cos, sin = angles[..., :half], angles[..., half:]
    made = []
    for shape in _shapes(axes):
        x = torch.randn(shape, generator=generator)
        length = 1 + torch.rand(*shape[:2], half, generator=generator)
        # Turned onto an axis: one of the two results is all rounding.
        onto = torch.randint(0, 2, (*shape[:2], half), generator=generator).to(torch.float32)
        x[..., :half] = length * (onto * cos + (1 - onto) * sin)
        x[..., half : 2 * half] = length * ((1 - onto) * cos - onto * sin)
        made.append(x)
    return _finish(made[0], made[1], axes, dtype, positions)


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
    laws={
        "normal": normal,
        "fused_qkv": fused_qkv,
        "mixed_scale": mixed_scale,
        "edge_positions": edge_positions,
        "cancelling": cancelling,
    },
    workloads=(
        _workload((1, 1, 1, 2, 2, 1), "float32"),
        _workload((0, 4, 2, 64, 64, 16), "bfloat16"),
        _workload((5, 3, 1, 22, 14, 100), "float32"),
        _workload((3, 16, 2, 256, 64, 4096), "bfloat16", "fused_qkv"),
        _workload((7, 5, 3, 64, 64, 300), "float16", "fused_qkv"),
        _workload((2, 4, 4, 80, 40, 1000), "bfloat16"),
        _workload((5, 3, 2, 33, 16, 129), "float32", "mixed_scale"),
        _workload((3, 4, 1, 65, 32, 1000), "bfloat16", "mixed_scale"),
        _workload((9, 3, 1, 32, 32, 17), "float16", "edge_positions"),
        _workload((7, 2, 2, 40, 24, 4097), "float32", "edge_positions"),
        _workload((4, 3, 2, 48, 48, 513), "float32", "cancelling"),
        _workload((5, 2, 1, 64, 32, 257), "bfloat16", "cancelling"),
        _workload((1, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 decode"),
        _workload((64, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 decode, batch 64"),
        _workload((4096, 16, 2, 256, 64, 262144), "bfloat16", "fused_qkv", "target", "Qwen3.6 prefill"),
    ),
    source="Su et al., RoFormer, 2021; half-split pairs and cos_sin_cache as in vLLM's rotary_embedding (neox style)",
    baselines=("gather_rotate_compiled", "gather_rotate"),
    rivals=("flashinfer.rope.apply_rope_with_cos_sin_cache", "vllm rotary_embedding"),
)
