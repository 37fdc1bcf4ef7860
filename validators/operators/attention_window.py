"""Attention inside windows, q and k rotated by given angles; the error model is that of ``attention_prefill``.

The contract lets a kernel round the rotated q and k to their own dtype, as models do, so S also holds that logit error.
"""

import math
from typing import cast

import torch

from kb.validators.operators import attention_draws
from kb.validators.operators.attention_prefill import C_ACC, C_OUT, attend, attention_condition, over_heads
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

C_LOGIT = 4.0
"""On u(dtype): two independent roundings a product are 0.6 u, and six standard deviations of them 3.6 u."""


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair (x[2i], x[2i+1]) by its angle, in float64; x [windows, tokens, heads, d], cos [tokens, d/2]."""
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], x.shape[-1] // 2, 2))
    turned = pairs * torch.complex(cos.double(), sin.double())[None, :, None]
    return torch.view_as_real(turned).flatten(-2)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, scale: float
) -> tuple[torch.Tensor, ...]:
    """Return attention of the rotated q and k in float64; shapes as in ``SPEC``."""

    def one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return attend(q, k, v, bias, scale=scale)

    return (over_heads(rotate(q, cos, sin), rotate(k, cos, sin), v, one, lambda *_: None),)


def condition(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, scale: float
) -> tuple[torch.Tensor, ...]:
    """Return S, shaped like the result."""

    def one(q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return attention_condition(q, k, values, bias, scale=scale, dtype=v.dtype, c_logit=C_LOGIT)

    return (over_heads(rotate(q, cos, sin), rotate(k, cos, sin), v, one, lambda *_: None),)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 * head_dim operations a pair and head, 3 a rotated element; q, k, v, y and the float32 tables once."""
    tokens = axes["num_windows"] * axes["window_tokens"]
    width = axes["num_heads"] * axes["head_dim"]
    return Cost(
        flops=4 * tokens * axes["window_tokens"] * width + 6 * tokens * width,
        essential_bytes=4 * tokens * width * itemsize(dtype) + 8 * axes["window_tokens"] * axes["half_dim"],
    )


def angles(window_tokens: int, half_dim: int) -> torch.Tensor:
    """Return [window_tokens, half_dim]: the first half of the pairs turns with the column, the second with the row."""
    side = math.isqrt(max(0, window_tokens - 1)) + 1
    place = torch.arange(window_tokens)
    first = half_dim - half_dim // 2
    speed = 10000.0 ** -(torch.arange(first) / max(1, first))
    across = (place % side)[:, None] * speed[None, :]
    down = (place // side)[:, None] * speed[None, : half_dim - first]
    return torch.cat([across, down], 1)


def _draw(axes: Axes, dtype: str, generator: torch.Generator, *, sharp: float, pad: int) -> Arguments:
    shape = (axes["num_windows"], axes["window_tokens"], axes["num_heads"], axes["head_dim"])
    wide = torch.randn(*shape[:3], 3, shape[3] + pad, generator=generator)
    wide[:, :, :, 0] *= sharp
    size = torch.exp2(torch.randint(-2, 3, shape[:3], generator=generator).float())
    wide[:, :, :, 2] *= size[..., None]
    q, k, v = wide.to(DTYPES[dtype])[..., : shape[3]].unbind(3)
    angle = angles(axes["window_tokens"], axes["half_dim"])
    if not pad:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    return q, k, v, angle.cos(), angle.sin(), axes["head_dim"] ** -0.5


def _plain(axes: Axes, generator: torch.Generator) -> attention_draws.Operands:
    q, k, v, *_ = _draw(axes, "float32", generator, sharp=1.5, pad=0)
    return cast(attention_draws.Operands, (q, k, v))


def _finish(qkv: attention_draws.Operands, axes: Axes, dtype: str, _: torch.Generator) -> Arguments:
    angle = angles(axes["window_tokens"], axes["half_dim"])
    return *(one.to(DTYPES[dtype]) for one in qkv), angle.cos(), angle.sin(), axes["head_dim"] ** -0.5


def turned(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with angles of no window: random ones of -10 … 10, so that a table of the usual ones is wrong."""
    q, k, v, *_, scale = _draw(axes, dtype, generator, sharp=1.5, pad=0)
    angle = 20 * torch.rand(axes["window_tokens"], axes["half_dim"], generator=generator) - 10
    return q, k, v, angle.cos(), angle.sin(), scale


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of standard deviation 1.5, values of scale 2^-2 … 2^2, angles of a square window."""
    return _draw(axes, dtype, generator, sharp=1.5, pad=0)


def peaked(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of standard deviation 8."""
    return _draw(axes, dtype, generator, sharp=8, pad=0)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but q, k and v are interleaved in one wider buffer."""
    return _draw(axes, dtype, generator, sharp=1.5, pad=8)


AXES = ("num_windows", "window_tokens", "num_heads", "head_dim", "half_dim")


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    made = dict(zip(AXES, (*sizes, sizes[-1] // 2), strict=True))
    return Workload(made, dtype, law=law, use=use, note=note)


_TOKENS = ("num_windows", "window_tokens", "num_heads", "head_dim")

SPEC = Operator(
    name="attention_window",
    summary="y = softmax(scale * rot(q) rot(k)^T) v inside each window, pairs (2i, 2i+1) turned by given angles",
    signature="attention_window(q, k, v, cos, sin, scale)",
    axes=AXES,
    inputs=(
        Buffer("q", _TOKENS, doc="not rotated yet; leading strides are free"),
        Buffer("k", _TOKENS, doc="not rotated yet"),
        Buffer("v", _TOKENS),
        Buffer("cos", ("window_tokens", "half_dim"), "float32", "of the angle of pair i, for all heads and windows"),
        Buffer("sin", ("window_tokens", "half_dim"), "float32"),
        Scalar("scale", None, "factor on the logits, usually head_dim^-0.5"),
    ),
    outputs=(Buffer("y", _TOKENS),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=C_OUT),
    cost=cost,
    laws={
        "normal": normal,
        "peaked": peaked,
        "strided": strided,
        "turned": turned,
        **attention_draws.laws(_plain, _finish),
    },
    workloads=(
        _case((1, 1, 1, 2), "float32"),
        _case((0, 9, 2, 32), "bfloat16"),
        _case((2, 37, 2, 64), "bfloat16"),
        _case((1, 130, 1, 32), "float32", law="peaked"),
        _case((3, 25, 2, 40), "float16", law="strided"),
        _case((1, 144, 1, 64), "bfloat16", law="strided"),
        _case((2, 17, 2, 32), "float32", law="turned"),
        _case((1, 31, 1, 64), "bfloat16", law="turned"),
        _case((1, 33, 2, 32), "float32", law="offset_logits"),
        _case((2, 65, 1, 16), "float16", law="late_keys"),
        _case((1, 127, 1, 32), "float32", law="flat"),
        _case((1, 15, 2, 64), "bfloat16", law="mixed_scale"),
        _case((9, 576, 16, 64), "bfloat16", use="target", note="SAM 3.1 image encoder, one image"),
        _case((72, 576, 16, 64), "bfloat16", use="target", note="SAM 3.1 image encoder, eight images"),
    ),
    source="transformers sam3 (Sam3ViTRoPEAttention): axial RoPE on interleaved pairs",
    baselines=("rotate_sdpa_compiled", "rotate_sdpa"),
    rivals=("flash_attn_3",),
)
