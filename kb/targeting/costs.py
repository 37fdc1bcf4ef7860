"""Costs of what no spec says, says by axes that rows of targets leave open, or makes dearer than an engine does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class Work(NamedTuple):
    """What no implementation of one call can avoid."""

    flops: float
    """Multiply and add counted as two."""
    moved_bytes: float
    """Each input read once and each output written once."""


Axes = Mapping[str, int]
Costing = Callable[[Axes, int], Work]
"""Takes axes and the bytes of an element."""


@dataclass(frozen=True)
class CostModel:
    """How much work a call of one operator is."""

    axes: tuple[str, ...]
    """Axes that it needs."""
    dtypes: tuple[str, ...]
    """Dtypes of data that it knows; empty for any."""
    work: Callable[[Axes, str], Work]
    """Takes axes and a dtype."""


ITEM_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "float64": 8, "float32": 4, "tfloat32": 4, "int64": 8, "int32": 4, "float16": 2, "bfloat16": 2, "nvfp4": 0.5625,
        "mxfp4": 0.53125, "int4": 0.5,
    }
)  # fmt: skip
"""Bytes of an element with its share of scales; one for every other dtype."""


def _rows(axes: Axes, item: int) -> Work:
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Work(elements, 2 * elements * item)


def _combine(axes: Axes, item: int) -> Work:
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Work(2 * elements * axes["top_k"], (axes["top_k"] + 1) * elements * item)


def _batched(axes: Axes, item: int) -> Work:
    batch, m, n, k = axes["batch"], axes["m"], axes["n"], axes["k"]
    return Work(2.0 * batch * m * n * k, batch * (m * k + n * k + m * n) * item)


def _conv1d(axes: Axes, item: int) -> Work:
    elements = axes["num_tokens"] * axes["num_channels"]
    return Work(elements * (2 * axes["width"] + 4), 2 * elements * item)


def _router(axes: Axes, item: int) -> Work:
    logits = axes["num_tokens"] * axes["num_experts"]
    return Work(6 * logits, logits * item + 8 * axes["num_tokens"] * axes["top_k"])


def _experts(axes: Axes, item: int) -> Work:
    rows, n, k = axes["num_tokens_expanded"], axes["n"], axes["k"]
    weights = min(axes["num_experts"], rows) * n * k * item
    return Work(2.0 * rows * n * k, weights + rows * (k * item + 2 * n))


def _mla_decode(axes: Axes, item: int) -> Work:
    cached, heads = axes["num_seqs"] * axes["context_len"], axes["num_heads"]
    latent, turned = axes["kv_lora_rank"], axes["rope_dim"]
    rows = axes["num_seqs"] * heads * (2 * latent + turned)
    return Work(2.0 * cached * heads * (2 * latent + turned), (cached * (latent + turned) + rows) * item)


def _mla_prefill(axes: Axes, item: int) -> Work:
    queries, keys, heads = axes["q_len"], axes["kv_len"], axes["num_heads"]
    wide, value = axes["nope_dim"] + axes["rope_dim"], axes["v_dim"]
    pairs = queries * keys - queries * (queries - 1) / 2 if axes["causal"] else queries * keys
    moved = heads * (queries * (wide + value) + keys * (wide + value))
    return Work(2.0 * axes["batch_size"] * heads * pairs * (wide + value), axes["batch_size"] * moved * item)


def _append(axes: Axes, item: int) -> Work:
    return Work(0, 4 * axes["num_tokens"] * axes["num_kv_heads"] * axes["head_dim"] * item)


def _rope_append(axes: Axes, item: int) -> Work:
    tokens, heads, shared = axes["num_tokens"], axes["num_heads"], axes["num_kv_heads"]
    moved = tokens * axes["head_dim"] * (2 * heads + 4 * shared) * item + tokens * 4 * axes["rotary_dim"]
    return Work(3 * tokens * (heads + shared) * axes["rotary_dim"], moved)


def _model(costing: Costing, *axes: str) -> CostModel:
    return CostModel(axes, (), lambda sizes, dtype: costing(sizes, _item(dtype)))


def _item(dtype: str) -> int:
    return max(1, int(ITEM_BYTES.get(dtype, 1)))


OWN: Mapping[str, CostModel] = MappingProxyType(
    {
        "batched_gemm": _model(_batched, "batch", "m", "n", "k"),
        "causal_conv1d": _model(_conv1d, "num_tokens", "num_channels", "width"),
        "elementwise": _model(_rows, "num_tokens", "hidden_size"),
        "embedding": _model(_rows, "num_tokens", "hidden_size"),
        "group_router": _model(_router, "num_tokens", "num_experts", "top_k"),
        "kv_append": _model(_append, "num_tokens", "num_kv_heads", "head_dim"),
        "mla_decode": _model(_mla_decode, "num_seqs", "context_len", "num_heads", "kv_lora_rank", "rope_dim"),
        "mla_prefill": _model(
            _mla_prefill, "batch_size", "q_len", "kv_len", "num_heads", "nope_dim", "rope_dim", "v_dim", "causal"
        ),
        "moe_combine": _model(_combine, "num_tokens", "hidden_size", "top_k"),
        "moe_grouped_gemm_fp8": _model(_experts, "num_tokens_expanded", "num_experts", "n", "k"),
        "rope_kv_append": _model(_rope_append, "num_tokens", "num_heads", "num_kv_heads", "head_dim", "rotary_dim"),
    }
)
"""Cost models that come before those of the specs.

Those that append to a cache are here because their specs return a whole new cache, where an engine writes a few slots;
``causal_conv1d`` and ``embedding`` because rows leave the length of the state and the vocabulary open.
"""
