"""What one call cannot avoid, for the operators of aiconfigurator's tables: operations, and bytes read and written.

Each function takes the columns of a row as numbers and returns a :class:`kb.prediction.Work`. Formats are the source's
own words (``fp8_block``); a scale counts with the elements that it scales.
"""

from collections.abc import Callable, Mapping

from kb.prediction import Work

Columns = Mapping[str, float]

_BYTES = {
    "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "int8": 1.0, "fp8": 1.0, "fp8_static": 1.0, "fp8_block": 1 + 4 / 128,
    "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32, "w4a16_mxfp4": 0.5 + 1 / 32, "int8_wo": 1.0, "int4_wo": 0.5,
}  # fmt: skip

_PRODUCTS = {
    "bfloat16": "bfloat16", "float16": "float16", "half": "float16", "int8": "int8", "fp8": "float8_e4m3fn",
    "fp8_static": "float8_e4m3fn", "fp8_block": "float8_e4m3fn", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
    "w4a16_mxfp4": "bfloat16", "int8_wo": "bfloat16", "int4_wo": "bfloat16",
}  # fmt: skip
"""The format in which products are made; weights alone in a narrow format are multiplied in 16 bits."""

_CHUNK = 64
"""Tokens that a chunked delta rule takes together."""


def element_bytes(dtype: str) -> float | None:
    """Return the bytes of an element with its share of the scales, or None for an unknown format."""
    return _BYTES.get(dtype)


def gemm(row: Columns, formats: Mapping[str, str]) -> Work:
    """A [m, k] times B [n, k] transposed; the result in 16 bits."""
    m, n, k = row["m"], row["n"], row["k"]
    dtype = formats["gemm_dtype"]
    each = _BYTES[dtype]
    inputs = 2.0 if _PRODUCTS[dtype] == "bfloat16" else each
    return Work(2 * m * n * k, m * k * inputs + n * k * each + 2 * m * n, _PRODUCTS[dtype])


def moe(row: Columns, formats: Mapping[str, str]) -> Work:
    """Gated experts of one rank: up and gate [hidden, 2 inter], down [inter, hidden]; weights of the experts hit.

    With tokens spread evenly every slot hits another expert until all are hit; under a power law the expected number
    of experts hit is that of draws with the law's probabilities.
    """
    dtype = formats["moe_dtype"]
    ranks = row["moe_ep_size"]
    experts, inner, hidden = row["num_experts"] / ranks, row["inter_size"] / row["moe_tp_size"], row["hidden_size"]
    slots = row["num_tokens"] * row["topk"] / ranks
    hit = _experts_hit(experts, slots, formats.get("distribution", "balanced"))
    weights = hit * 3 * hidden * inner * _BYTES[dtype]
    tokens = min(row["num_tokens"], slots)
    return Work(6 * slots * hidden * inner, weights + 2 * tokens * hidden * 2, _PRODUCTS[dtype])


def _experts_hit(experts: float, slots: float, distribution: str) -> float:
    if not distribution.startswith("power_law"):
        return min(experts, slots)
    power = float(distribution.rpartition("_")[2])
    masses = [(rank + 1) ** -power for rank in range(max(1, round(experts)))]
    total = sum(masses)
    hit: float = sum(1 - (1 - mass / total) ** slots for mass in masses)
    return min(slots, hit)


def context_attention(row: Columns, formats: Mapping[str, str]) -> Work:
    """Causal attention of ``isl`` new tokens over ``step`` cached ones and themselves."""
    batch, new, before = row["batch_size"], row["isl"], row.get("step", 0)
    heads, kv_heads, dim = row["num_heads"], row["num_key_value_heads"], row["head_dim"]
    seen = new * before + new * (new + 1) / 2
    window = row.get("window_size", 0)
    if 0 < window < new + before:
        seen = min(seen, new * window)
    moved = batch * 2 * new * heads * dim * 2 + batch * (new + before) * 2 * kv_heads * dim * _kv_bytes(formats)
    products = _PRODUCTS.get(formats.get("attn_dtype", "bfloat16"), "bfloat16")
    return Work(4 * batch * heads * dim * seen, moved, products)


def generation_attention(row: Columns, formats: Mapping[str, str]) -> Work:
    """One new token a sequence over ``isl + step`` cached ones; keys and values are read once."""
    batch, length = row["batch_size"], row["isl"] + row.get("step", 0)
    window = row.get("window_size", 0)
    length = min(length, window) if window > 0 else length
    heads, kv_heads, dim = row["num_heads"], row["num_key_value_heads"], row["head_dim"]
    cached = batch * length * 2 * kv_heads * dim * _kv_bytes(formats)
    return Work(4 * batch * heads * dim * length, cached + batch * 2 * heads * dim * 2, "bfloat16")


def _kv_bytes(formats: Mapping[str, str]) -> float:
    return _BYTES[formats.get("kv_cache_dtype", "bfloat16")]


def gated_delta_net(row: Columns, formats: Mapping[str, str]) -> Work:
    """The convolution or the delta rule of a Gated DeltaNet layer, over a prompt or for one token a sequence.

    States are float32 [v_heads, k_dim, v_dim], read and written once a sequence.
    """
    tokens = row["num_tokens"] if formats["phase"] == "context" else row["batch_size"]
    k_width, v_width = row["num_k_heads"] * row["head_k_dim"], row["num_v_heads"] * row["head_v_dim"]
    if "conv" in formats["kernel_source"]:
        channels = 2 * k_width + v_width
        states = row["batch_size"] * channels * (row["d_conv"] - 1) * 2
        return Work(2 * tokens * channels * row["d_conv"], 2 * tokens * channels * 2 + 2 * states, "bfloat16")
    state = row["num_v_heads"] * row["head_k_dim"] * row["head_v_dim"]
    streams = tokens * (2 * k_width + 2 * v_width + 2 * row["num_v_heads"]) * 2
    moved = streams + 2 * row["batch_size"] * state * 4
    if formats["phase"] != "context":
        return Work(7 * tokens * state, moved, "bfloat16")
    within = tokens * row["num_v_heads"] * _CHUNK * 2 * (2 * row["head_k_dim"] + row["head_v_dim"])
    return Work(6 * tokens * state + within, moved, "bfloat16")


COSTS: Mapping[str, Callable[[Columns, Mapping[str, str]], Work]] = {
    "gemm": gemm,
    "moe": moe,
    "context_attention": context_attention,
    "generation_attention": generation_attention,
    "gdn": gated_delta_net,
}
"""``op_name`` of a row to its cost."""
