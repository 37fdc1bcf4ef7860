"""Two-dimensional rotary embedding of image tokens: half of every head turns with x, half with y (adjacent pairs)."""

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
    Scalar,
    Workload,
    itemsize,
)

THETA = 1e4
"""Base of the angles drawn by the laws, that of SAM 3; the operator itself takes a table."""


def _angles(cos_sin: torch.Tensor, width: int, num_tokens: int) -> torch.Tensor:
    """Return cos + i sin of every pair, complex128 [num_tokens, head_dim/2]: x pairs first, then y pairs."""
    quarter = cos_sin.shape[1] // 2
    table = torch.complex(cos_sin[:, :quarter].to(torch.float64), cos_sin[:, quarter:].to(torch.float64))
    token = torch.arange(num_tokens)
    return torch.cat([table[token % width], table[token // width]], dim=1)


def _pairs(x: torch.Tensor) -> torch.Tensor:
    """Return x as complex128 [batch, tokens, heads, head_dim/2], element 2p real, 2p + 1 imaginary."""
    return torch.view_as_complex(x.to(torch.float64).reshape(*x.shape[:-1], x.shape[-1] // 2, 2))


def rotate(x: torch.Tensor, cos_sin: torch.Tensor, width: int) -> torch.Tensor:
    """Return x [batch_size, num_tokens, num_heads, head_dim] rotated, in float64."""
    turned = _pairs(x) * _angles(cos_sin, width, x.shape[1])[None, :, None, :]
    return torch.view_as_real(turned).flatten(-2)


def scale(x: torch.Tensor, cos_sin: torch.Tensor, width: int) -> torch.Tensor:
    """Return S of ``rotate``: sqrt of the two squared products, because their sum cancels."""
    pairs, turn = _pairs(x), _angles(cos_sin, width, x.shape[1])[None, :, None, :]
    real = torch.hypot(pairs.real * turn.real, pairs.imag * turn.imag)
    imaginary = torch.hypot(pairs.real * turn.imag, pairs.imag * turn.real)
    return torch.stack([real, imaginary], dim=-1).flatten(-2)


def reference(q: torch.Tensor, k: torch.Tensor, cos_sin: torch.Tensor, width: int) -> tuple[torch.Tensor, ...]:
    """Return q and k rotated, in float64; token t sits at x = t % width, y = t // width."""
    return rotate(q, cos_sin, width), rotate(k, cos_sin, width)


def condition(q: torch.Tensor, k: torch.Tensor, cos_sin: torch.Tensor, width: int) -> tuple[torch.Tensor, ...]:
    """Return S of both outputs, as ``scale`` says."""
    return scale(q, cos_sin, width), scale(k, cos_sin, width)


def cost(axes: Axes, dtype: str) -> Cost:
    """Three operations an element; q and k read and written once, the table (side * head_dim/2 float32) read once."""
    tokens = axes["height"] * axes["width"]
    elements = 2 * axes["batch_size"] * tokens * axes["num_heads"] * axes["head_dim"]
    table = 2 * max(axes["height"], axes["width"]) * axes["head_dim"]
    return Cost(flops=3 * elements, essential_bytes=2 * elements * itemsize(dtype) + table)


def table_of(axes: Axes) -> torch.Tensor:
    """Return cos and sin of coordinate * THETA^(-4 i / head_dim), [max(height, width), head_dim/2] float32."""
    frequency = THETA ** (-torch.arange(0, axes["head_dim"], 4, dtype=torch.float64) / axes["head_dim"])
    angle = torch.arange(max(axes["height"], axes["width"]), dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1).to(torch.float32)


def fused_qkv(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Images of scale 1; q and k are views into one [batch, tokens, 3 * num_heads * head_dim] projection."""
    tokens, heads = axes["height"] * axes["width"], axes["num_heads"]
    qkv = torch.randn(axes["batch_size"], tokens, 3 * heads, axes["head_dim"], generator=generator).to(DTYPES[dtype])
    return qkv[:, :, :heads], qkv[:, :, heads : 2 * heads], table_of(axes), axes["width"]


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``fused_qkv``, with q and k contiguous."""
    q, k, table, width = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor, int], fused_qkv(axes, dtype, generator))
    return q.contiguous(), k.contiguous(), table, width


def _finish(q: torch.Tensor, k: torch.Tensor, axes: Axes, dtype: str) -> Arguments:
    return q.to(DTYPES[dtype]), k.to(DTYPES[dtype]), table_of(axes), axes["width"]


def _shape(axes: Axes) -> tuple[int, ...]:
    return axes["batch_size"], axes["height"] * axes["width"], axes["num_heads"], axes["head_dim"]


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Heads of scale 2^-6 … 2^6 behind a nominal one, the last channels 16 times the rest."""
    q, k = (mixed(_shape(axes), generator, spread=6) for _ in range(2))
    return _finish(q, k, axes, dtype)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty heads, as ``draws.structured`` has them: only the angles differ."""
    q, k = (structured(_shape(axes), generator) for _ in range(2))
    return _finish(q, k, axes, dtype)


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pairs that turn onto one of their axes: the other result is the difference of two equal products."""
    made = []
    turn = _angles(table_of(axes), axes["width"], axes["height"] * axes["width"])[None, :, None, :]
    for _ in range(2):
        shape = (*_shape(axes)[:3], axes["head_dim"] // 2)
        length = 1 + torch.rand(shape, generator=generator, dtype=torch.float64)
        onto = torch.randint(0, 4, shape, generator=generator)
        target = torch.tensor([1, 1j, -1, -1j], dtype=torch.complex128)[onto]
        made.append(torch.view_as_real(length * target * turn.conj()).flatten(-2))
    return _finish(made[0], made[1], axes, dtype)


_AXES = ("batch_size", "height", "width", "num_heads", "head_dim")
_SHAPE = ("batch_size", "height*width", "num_heads", "head_dim")


def _workload(
    sizes: tuple[int, ...], dtype: str, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="rope_2d",
    summary="pair (2p, 2p + 1) of a head turns by x * theta_p (p < head_dim/4) or y * theta_(p - head_dim/4)",
    signature="rope_2d(q, k, cos_sin, width)",
    axes=_AXES,
    inputs=(
        Buffer("q", _SHAPE, doc="tokens row-major in the image; batch and token strides are free"),
        Buffer("k", _SHAPE, doc="as q, with the same strides or others"),
        Buffer(
            "cos_sin", ("max(height,width)", "head_dim/2"), "float32", "a row: head_dim/4 cosines, then sines", True
        ),
        Scalar("width", None, "tokens in an image row"),
    ),
    outputs=(Buffer("q_out", _SHAPE), Buffer("k_out", _SHAPE)),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # As rope: at most (sqrt(2) + 1) u S. c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "fused_qkv": fused_qkv,
        "mixed_scale": mixed_scale,
        "structure": structure,
        "cancelling": cancelling,
    },
    workloads=(
        _workload((1, 1, 1, 1, 4), "float32"),
        _workload((0, 4, 4, 2, 32), "bfloat16"),
        _workload((2, 3, 5, 3, 12), "float32"),
        _workload((1, 7, 4, 16, 64), "bfloat16", "fused_qkv"),
        _workload((3, 2, 6, 1, 256), "float16", "fused_qkv"),
        _workload((2, 5, 3, 2, 72), "bfloat16"),
        _workload((2, 3, 5, 2, 36), "float32", "mixed_scale"),
        _workload((1, 5, 3, 3, 32), "bfloat16", "mixed_scale"),
        _workload((1, 4, 9, 3, 20), "float16", "structure"),
        _workload((2, 2, 17, 1, 16), "bfloat16", "structure"),
        _workload((1, 5, 7, 3, 64), "float32", "cancelling"),
        _workload((1, 3, 4, 2, 40), "bfloat16", "cancelling"),
        _workload((1, 72, 72, 16, 64), "bfloat16", "fused_qkv", "target", "SAM 3.1 global attention"),
        _workload((9, 24, 24, 16, 64), "bfloat16", "fused_qkv", "target", "SAM 3.1 window attention"),
        _workload((1, 72, 72, 1, 256), "bfloat16", "normal", "target", "SAM 3 memory attention"),
    ),
    source="Heo et al., Rotary position embedding for vision transformer, 2024 (axial form); SAM 3 image encoder",
    baselines=("rotate_compiled", "rotate"),
)
