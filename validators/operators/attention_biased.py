"""Non-causal attention with a bias added to the logits; the error model is that of ``attention_prefill``."""

import torch

from kb.validators.operators import attention_draws
from kb.validators.operators.attention_prefill import C_ACC, C_OUT, Bias, attend, attention_condition, over_heads
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


def _rows(bias: torch.Tensor) -> Bias:
    def one(batch: int, head: int, rows: slice) -> torch.Tensor:
        return bias[batch, head, rows].double()

    return one


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: float
) -> tuple[torch.Tensor, ...]:
    """Return attention in float64; shapes as in ``SPEC``."""

    def one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        return attend(q, k, v, rows, scale=scale)

    return (over_heads(q, k, v, one, _rows(bias)),)


def condition(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: float
) -> tuple[torch.Tensor, ...]:
    """Return S, shaped like the result."""

    def one(q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        return attention_condition(q, k, values, rows, scale=scale, dtype=v.dtype)

    return (over_heads(q, k, v, one, _rows(bias)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 * head_dim + 1 operations a pair and head; q, k, v, y and the whole bias once."""
    queries, keys, heads = axes["q_len"], axes["kv_len"], axes["num_heads"]
    pairs = axes["batch_size"] * heads * queries * keys
    rows = axes["batch_size"] * axes["head_dim"] * (2 * queries * heads + 2 * keys * heads)
    return Cost(flops=(4 * axes["head_dim"] + 1) * pairs, essential_bytes=(rows + pairs) * itemsize(dtype))


def _draw(axes: Axes, dtype: str, generator: torch.Generator) -> list[torch.Tensor]:
    lead = (axes["batch_size"], axes["kv_len"], axes["num_heads"])
    q = 1.5 * torch.randn(lead[0], axes["q_len"], lead[2], axes["head_dim"], generator=generator)
    k = torch.randn(*lead, axes["head_dim"], generator=generator)
    size = torch.exp2(torch.randint(-2, 3, lead, generator=generator).float())
    v = torch.randn(*lead, axes["head_dim"], generator=generator) * size[..., None]
    return [one.to(DTYPES[dtype]) for one in (q, k, v)]


def _pairs(axes: Axes) -> tuple[int, ...]:
    return axes["batch_size"], axes["num_heads"], axes["q_len"], axes["kv_len"]


def _plain(axes: Axes, generator: torch.Generator) -> attention_draws.Operands:
    q, k, v = _draw(axes, "float32", generator)
    return q, k, v


def _finish(qkv: attention_draws.Operands, axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    bias = 2 * torch.randn(_pairs(axes), generator=generator)
    return *(one.to(DTYPES[dtype]) for one in qkv), bias.to(DTYPES[dtype]), axes["head_dim"] ** -0.5


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits and bias of standard deviation 1.5 and 2."""
    bias = 2 * torch.randn(_pairs(axes), generator=generator)
    return *_draw(axes, dtype, generator), bias.to(DTYPES[dtype]), axes["head_dim"] ** -0.5


def log_box(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The bias of a box decoder: -4 log2(1 + distance from a query's box), different in every head."""
    batch, heads, queries, keys = _pairs(axes)
    side = max(1, int(keys**0.5))
    place = torch.arange(keys)
    at = torch.stack([place % side, place // side], -1) / side
    centre = torch.rand(batch, heads, queries, 1, 2, generator=generator)
    half = 0.05 + 0.3 * torch.rand(batch, heads, queries, 1, 2, generator=generator)
    outside = ((at - centre).abs() - half).clamp_min(0).sum(-1)
    bias = -4 * torch.log2(1 + 8 * outside)
    return *_draw(axes, dtype, generator), bias.to(DTYPES[dtype]), axes["head_dim"] ** -0.5


def masked(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Half of the pairs are hidden by -inf, and the first query of every head sees nothing."""
    bias = torch.randn(_pairs(axes), generator=generator)
    bias = bias.masked_fill(torch.rand(_pairs(axes), generator=generator) < 0.5, -torch.inf)
    bias[:, :, :1] = -torch.inf
    return *_draw(axes, dtype, generator), bias.to(DTYPES[dtype]), axes["head_dim"] ** -0.5


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but one bias is shared by all heads (stride 0) and q, k, v are slices of wider buffers."""
    bias = 2 * torch.randn(_pairs(axes), generator=generator)[:, :1]
    parts = [torch.cat([one, one], 2)[:, :, : one.shape[2]] for one in _draw(axes, dtype, generator)]
    return *parts, bias.to(DTYPES[dtype]).expand(_pairs(axes)), axes["head_dim"] ** -0.5


AXES = ("batch_size", "q_len", "kv_len", "num_heads", "head_dim")


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


_KEYS = ("batch_size", "kv_len", "num_heads", "head_dim")

SPEC = Operator(
    name="attention_biased",
    summary="y = softmax(scale * q k^T + bias) v, every key visible",
    signature="attention_biased(q, k, v, bias, scale)",
    axes=AXES,
    inputs=(
        Buffer("q", ("batch_size", "q_len", "num_heads", "head_dim"), doc="leading strides are free"),
        Buffer("k", _KEYS),
        Buffer("v", _KEYS),
        Buffer(
            "bias",
            ("batch_size", "num_heads", "q_len", "kv_len"),
            doc="natural-log units, after scale; -inf hides a pair, a row of -inf gives zeros; stride 0 is allowed",
        ),
        Scalar("scale", None, "factor on q k^T, usually head_dim^-0.5"),
    ),
    outputs=(Buffer("y", ("batch_size", "q_len", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=C_OUT),
    cost=cost,
    laws={
        "normal": normal,
        "log_box": log_box,
        "masked": masked,
        "strided": strided,
        **attention_draws.laws(_plain, _finish),
    },
    workloads=(
        _case((1, 1, 1, 1, 16), "float32"),
        _case((0, 3, 5, 2, 32), "bfloat16"),
        _case((1, 67, 149, 2, 32), "bfloat16", law="log_box"),
        _case((2, 13, 83, 1, 64), "float32", law="masked"),
        _case((1, 21, 301, 2, 32), "float16", law="strided"),
        _case((1, 9, 40, 1, 48), "bfloat16", law="masked"),
        _case((1, 17, 33, 2, 64), "float32", law="offset_logits"),
        _case((1, 15, 31, 2, 32), "bfloat16", law="offset_logits"),
        _case((1, 31, 129, 1, 32), "float16", law="late_keys"),
        _case((1, 17, 127, 2, 16), "float32", law="flat"),
        _case((1, 9, 33, 2, 64), "bfloat16", law="mixed_scale"),
        _case((2, 16, 17, 2, 32), "float32", law="mixed_scale"),
        _case((1, 201, 5184, 8, 32), "bfloat16", law="log_box", use="target", note="SAM 3.1 detector decoder"),
        _case((8, 201, 5184, 8, 32), "bfloat16", law="log_box", use="target", note="SAM 3.1, eight images"),
    ),
    source="transformers sam3 (box relative position bias of the detection decoder)",
    baselines=("sdpa", "sdpa_compiled"),
    rivals=("torch flex_attention",),
)
