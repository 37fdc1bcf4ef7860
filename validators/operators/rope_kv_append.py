"""Partial RoPE on q and k, and the append of rotated k and of v to a paged cache, in one operator."""

import torch

from kb.validators.operators import kv_append, rope
from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return rotated q and both caches after the append, in float64; shapes as in ``SPEC.inputs``."""
    rotated = rope.rotate(k, cos_sin_cache, positions)
    return (
        rope.rotate(q, cos_sin_cache, positions),
        kv_append.append(rotated, k_cache.to(torch.float64), slot_mapping),
        kv_append.append(v.to(torch.float64), v_cache.to(torch.float64), slot_mapping),
    )


def condition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return S: that of the rotation where k was rotated, |y| where values were only copied."""
    rotated = rope.rotation_scale(k, cos_sin_cache, positions)
    return (
        rope.rotation_scale(q, cos_sin_cache, positions),
        kv_append.append(rotated, k_cache.to(torch.float64).abs(), slot_mapping),
        kv_append.append(v.to(torch.float64).abs(), v_cache.to(torch.float64).abs(), slot_mapping),
    )


def cost(axes: Axes, dtype: str) -> Cost:
    """Three operations a rotated element; bytes of ``kv_append``, q in and out, a table row and an int64 a token."""
    tokens, heads = axes["num_tokens"], axes["num_heads"] + axes["num_kv_heads"]
    moved = 2 * tokens * axes["num_heads"] * axes["head_dim"] * itemsize(dtype)
    table = tokens * (4 * axes["rotary_dim"] + 8)
    caches = kv_append.cost(axes, dtype).essential_bytes
    return Cost(flops=3 * tokens * heads * axes["rotary_dim"], essential_bytes=moved + table + caches)


def scattered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """q, k, v views into one projection, random positions, slots scattered over all pages, every fifth one -1."""
    q, k, table, positions = rope.fused_qkv(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.scattered(axes, dtype, generator)
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


def prefill(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``scattered``, but one prompt: consecutive positions, whole pages in random order."""
    q, k, table, _ = rope.fused_qkv(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.prefill(axes, dtype, generator)
    positions = torch.arange(axes["num_tokens"]) % axes["max_position"]
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``scattered``, with heads of scale 2^-4 … 2^4 in new rows and caches, everything contiguous."""
    q, k, table, positions = rope.mixed_scale(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.normal(axes, dtype, generator)
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


def edges(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """First and last positions of the table, first and last slots of every page."""
    q, k, table, positions = rope.edge_positions(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.page_edges(axes, dtype, generator)
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pairs that turn onto one of their axes, so that products which are rounded before their sum show."""
    q, k, table, positions = rope.cancelling(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.scattered(axes, dtype, generator)
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


def skipped(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Every token is padding: q is rotated all the same, the caches come out as they went in."""
    q, k, table, positions = rope.fused_qkv(axes, dtype, generator)
    _, v, k_cache, v_cache, slot_mapping = kv_append.skipped(axes, dtype, generator)
    return q, k, v, table, positions, k_cache, v_cache, slot_mapping


_AXES = (
    "num_tokens",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "rotary_dim",
    "max_position",
    "num_pages",
    "page_size",
)
_NEW = ("num_tokens", "num_kv_heads", "head_dim")
_CACHE = ("num_pages", "page_size", "num_kv_heads", "head_dim")


def _workload(sizes: tuple[int, ...], dtype: str, law: str, use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="rope_kv_append",
    summary="q_out = rope(q); cache[slot_mapping[t]] = rope(k)[t], v[t] where slot_mapping[t] >= 0; returns new caches",
    signature="rope_kv_append(q, k, v, cos_sin_cache, positions, k_cache, v_cache, slot_mapping)",
    axes=_AXES,
    inputs=(
        Buffer("q", ("num_tokens", "num_heads", "head_dim"), doc="after its per-head norm; the token stride is free"),
        Buffer("k", _NEW, doc="after its per-head norm; the token stride is free"),
        Buffer("v", _NEW, doc="the token stride is free"),
        Buffer(
            "cos_sin_cache", ("max_position", "rotary_dim"), "float32", "a row: rotary_dim/2 cosines, then sines", True
        ),
        Buffer("positions", ("num_tokens",), "int64", "row of the table for each token"),
        Buffer("k_cache", _CACHE, doc="row-major; read only, a new cache is returned"),
        Buffer("v_cache", _CACHE, doc="row-major; read only, a new cache is returned"),
        Buffer(
            "slot_mapping", ("num_tokens",), "int64", "page * page_size + offset; -1: skip the token; no slot twice"
        ),
    ),
    outputs=(
        Buffer("q_out", ("num_tokens", "num_heads", "head_dim")),
        Buffer("k_cache_out", _CACHE, doc="slots not named by slot_mapping are unchanged"),
        Buffer("v_cache_out", _CACHE, doc="slots not named by slot_mapping are unchanged"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),  # as rope
    cost=cost,
    laws={
        "scattered": scattered,
        "prefill": prefill,
        "normal": normal,
        "edges": edges,
        "cancelling": cancelling,
        "skipped": skipped,
    },
    workloads=(
        _workload((1, 1, 1, 2, 2, 1, 1, 1), "float32", "scattered"),
        _workload((0, 4, 2, 64, 64, 16, 2, 8), "bfloat16", "scattered"),
        _workload((7, 3, 1, 22, 14, 100, 5, 3), "float32", "scattered"),
        _workload((13, 16, 2, 256, 64, 4096, 2, 16), "bfloat16", "prefill"),
        _workload((6, 4, 2, 64, 64, 300, 4, 4), "float16", "scattered"),
        _workload((9, 5, 5, 80, 40, 50, 3, 7), "bfloat16", "prefill"),
        _workload((5, 3, 2, 33, 16, 129, 3, 7), "float32", "normal"),
        _workload((9, 2, 1, 32, 32, 17, 4, 5), "float16", "edges"),
        _workload((4, 3, 2, 48, 48, 513, 2, 3), "float32", "cancelling"),
        _workload((5, 2, 1, 64, 32, 257, 3, 2), "bfloat16", "cancelling"),
        _workload((3, 4, 2, 17, 8, 40, 2, 3), "bfloat16", "skipped"),
        _workload((64, 16, 2, 256, 64, 262144, 64, 16), "bfloat16", "scattered", "target", "Qwen3.6 decode, batch 64"),
        _workload((4096, 16, 2, 256, 64, 262144, 257, 16), "bfloat16", "prefill", "target", "Qwen3.6 prefill"),
    ),
    source="Su et al., RoFormer, 2021; Kwon et al., PagedAttention, 2023",
    baselines=("rotate_index_copy_compiled", "rotate_index_copy"),
    rivals=(
        "flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache",
        "vllm rotary_embedding + reshape_and_cache_flash",
    ),
)
