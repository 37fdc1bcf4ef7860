"""Attention over dense keys and values, causal or not, with grouped query heads; and what its relatives share.

The error of softmax(logits) @ v has three sources, and S holds all of them:

* the sum over keys: sqrt(sum p_j^2 v_j^2), as for any dot product;
* the logits: an error d_j of logit j moves the result by p_j d_j (v_j - y). In float32 d_j is u times the condition
  scale of the product q k_j (and the size of the logit itself, which is rounded when the maximum is subtracted), so a
  peaked row with logits of 30 is 30 times worse than a flat one;
* the weights p_j, which the contract lets a kernel round to the dtype of v before the second product. That unit
  roundoff depends on the workload, so the term is added to S here, in units of C_ACC * u(float32), instead of in
  ``ErrorModel.operand``, which is one format for all workloads.
"""

from collections.abc import Callable

import torch

from kb.validators.operators import attention_draws
from kb.validators.operators.spec import (
    DTYPES,
    UNIT_ROUNDOFF,
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

C_ACC = 200.0
"""On u(float32) * S. Honest float32 products reach 15 to 31; TF32 is at 42,000."""
C_WEIGHTS = 4.0
"""On u(dtype) * sqrt(sum p^2 v^2): a rounding error has a standard deviation of about 0.42 u, and six are 2.5 u."""
C_OUT = 2.0
"""One rounding of the result, with room for truncation, which is how Triton's interpreter stores bfloat16."""
ROWS = 512
"""Queries taken at a time, so that 16k x 16k float64 logits never exist at once."""

Rows = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""(q [m, d], k [n, d], v [n, d], bias [m, n] or None), all float64 -> [m, d]."""
Bias = Callable[[int, int, slice], torch.Tensor | None]
"""(batch, head, queries) -> bias [m, n] of those queries, or None."""


def softmax_rows(logits: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis; a row of -inf (no visible key) is all zero."""
    return torch.softmax(logits, -1).nan_to_num(0.0)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, *, scale: float
) -> torch.Tensor:
    """Return softmax(scale * q k^T + bias) v in float64; q [m, d], k and v [n, d], bias [m, n] or None."""
    logits = scale * (q @ k.T)
    return softmax_rows(logits if bias is None else logits + bias) @ v


def attention_condition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    scale: float,
    dtype: torch.dtype,
    c_logit: float = 0.0,
) -> torch.Tensor:
    """Return S [m, d] of the module docstring.

    Args:
        q: float64 [m, d].
        k: float64 [n, d].
        v: float64 [n, d].
        bias: float64 [m, n], or None.
        scale: Factor on the logits.
        dtype: Of the workload: the weights may be rounded to it.
        c_logit: Factor on u(dtype) in the logit error, where the contract lets q and k be rounded too.
    """
    raw = scale * (q @ k.T)
    weights = softmax_rows(raw if bias is None else raw + bias)
    offset = torch.zeros_like(raw) if bias is None else torch.nan_to_num(bias, neginf=0.0)
    product = scale**2 * (q.square() @ k.square().T)
    squares, power = weights.square(), v.square()
    mean = (weights @ v).square()

    def moved(spread: torch.Tensor) -> torch.Tensor:
        """Squared effect of independent logit errors: sum p^2 d^2 (v - y)^2, at most twice the two squares."""
        share = squares * spread
        return 2 * (share @ power + mean * share.sum(-1, keepdim=True))

    direct = squares @ power
    total = (direct + moved(product + raw.square() + offset.square())).sqrt()
    if dtype == torch.float32:
        return total
    name = next(name for name, one in DTYPES.items() if one == dtype)
    extra = C_WEIGHTS * direct.sqrt() + c_logit * moved(product).sqrt()
    return total + extra * UNIT_ROUNDOFF[name] / (C_ACC * UNIT_ROUNDOFF["float32"])


def over_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, one: Rows, bias: Bias) -> torch.Tensor:
    """Apply ``one`` per batch and head; q [batch, q_len, heads, d], k and v [batch, kv_len, kv_heads, d]."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    group = q.shape[2] // k.shape[2]
    for batch in range(q.shape[0]):
        for head in range(q.shape[2]):
            keys, values = k[batch, :, head // group].double(), v[batch, :, head // group].double()
            for start in range(0, q.shape[1], ROWS):
                rows = slice(start, min(start + ROWS, q.shape[1]))
                out[batch, rows, head] = one(q[batch, rows, head].double(), keys, values, bias(batch, head, rows))
    return out


def _causal_bias(q: torch.Tensor, k: torch.Tensor, causal: int) -> Bias:
    def bias(_batch: int, _head: int, rows: slice) -> torch.Tensor | None:
        if not causal:
            return None
        last = torch.arange(rows.start, rows.stop)[:, None] + k.shape[1] - q.shape[1]
        hidden = torch.arange(k.shape[1])[None, :] > last
        return torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, -torch.inf)

    return bias


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return attention in float64; shapes as in ``SPEC``."""

    def one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return attend(q, k, v, bias, scale=scale)

    return (over_heads(q, k, v, one, _causal_bias(q, k, causal)),)


def condition(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: int = 1
) -> tuple[torch.Tensor, ...]:
    """Return S of the module docstring, shaped like the result."""

    def one(q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return attention_condition(q, k, values, bias, scale=scale, dtype=v.dtype)

    return (over_heads(q, k, v, one, _causal_bias(q, k, causal)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 * head_dim operations a visible (query, key) pair and head; q, k, v read once, the result written once."""
    queries, keys = axes["q_len"], axes["kv_len"]
    pairs = queries * keys
    if axes["causal"]:
        pairs = sum(max(0, min(keys, row + 1 + keys - queries)) for row in range(queries))
    width = axes["batch_size"] * axes["head_dim"]
    elements = width * (2 * queries * axes["num_heads"] + 2 * keys * axes["num_kv_heads"])
    return Cost(flops=4 * width * axes["num_heads"] * pairs, essential_bytes=elements * itemsize(dtype))


def _draw(axes: Axes, generator: torch.Generator, *, sharp: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, dim = axes["batch_size"], axes["head_dim"]
    q = sharp * torch.randn(batch, axes["q_len"], axes["num_heads"], dim, generator=generator)
    k = torch.randn(batch, axes["kv_len"], axes["num_kv_heads"], dim, generator=generator)
    v = torch.randn(batch, axes["kv_len"], axes["num_kv_heads"], dim, generator=generator)
    return q, k, v * torch.exp2(torch.randint(-2, 3, v.shape[:3], generator=generator).float())[..., None]


def _plain(axes: Axes, generator: torch.Generator) -> attention_draws.Operands:
    return _draw(axes, generator, sharp=1.5)


def _finish(qkv: attention_draws.Operands, axes: Axes, dtype: str, _: torch.Generator) -> Arguments:
    return *(one.to(DTYPES[dtype]) for one in qkv), axes["head_dim"] ** -0.5, axes["causal"]


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of standard deviation 1.5, values of scale 2^-2 … 2^2."""
    return _finish(_plain(axes, generator), axes, dtype, generator)


def peaked(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of standard deviation 10: nearly one-hot rows, the running maximum changes often."""
    return _finish(_draw(axes, generator, sharp=10), axes, dtype, generator)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but q, k and v are slices of wider buffers, as a fused projection leaves them."""
    parts = []
    for one in _draw(axes, generator, sharp=1.5):
        wide = torch.full((*one.shape[:2], one.shape[2] + 3, one.shape[3]), 3e4).to(DTYPES[dtype])
        wide[:, :, 1:-2] = one.to(DTYPES[dtype])
        parts.append(wide[:, :, 1:-2])
    return *parts, axes["head_dim"] ** -0.5, axes["causal"]


AXES = ("batch_size", "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "causal")


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="attention_prefill",
    summary="y = softmax(scale * q k^T, visible keys only) v, grouped query heads",
    signature="attention_prefill(q, k, v, scale, causal=1)",
    axes=AXES,
    inputs=(
        Buffer("q", ("batch_size", "q_len", "num_heads", "head_dim"), doc="leading strides are free"),
        Buffer("k", ("batch_size", "kv_len", "num_kv_heads", "head_dim"), doc="head h reads h // (heads/kv_heads)"),
        Buffer("v", ("batch_size", "kv_len", "num_kv_heads", "head_dim")),
        Scalar("scale", None, "factor on the logits, usually head_dim^-0.5"),
        Scalar("causal", 1, "1: query i sees keys 0 … i + kv_len - q_len (the last query sees all); none: zeros"),
    ),
    outputs=(Buffer("y", ("batch_size", "q_len", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=C_OUT),
    cost=cost,
    laws={"normal": normal, "peaked": peaked, "strided": strided, **attention_draws.laws(_plain, _finish)},
    workloads=(
        _case((1, 1, 1, 1, 1, 16, 1), "float32"),
        _case((0, 5, 5, 2, 1, 16, 1), "bfloat16"),
        _case((1, 67, 67, 4, 2, 64, 1), "bfloat16"),
        _case((2, 19, 83, 2, 1, 32, 1), "float32", note="chunked prefill: more keys than queries"),
        _case((1, 37, 21, 2, 2, 32, 1), "float16", note="the first 16 queries see nothing"),
        _case((1, 70, 131, 2, 2, 72, 0), "bfloat16", law="strided", note="head_dim of a vision tower"),
        _case((1, 33, 40, 2, 1, 256, 1), "bfloat16", law="peaked"),
        _case((1, 130, 150, 1, 1, 64, 0), "float32", law="peaked"),
        _case((1, 17, 33, 2, 1, 64, 1), "float32", law="offset_logits"),
        _case((1, 15, 31, 2, 2, 32, 0), "bfloat16", law="offset_logits"),
        _case((1, 31, 129, 1, 1, 32, 0), "float16", law="late_keys"),
        _case((1, 33, 65, 2, 1, 16, 1), "bfloat16", law="late_keys"),
        _case((1, 17, 127, 1, 1, 32, 1), "float32", law="flat"),
        _case((1, 9, 33, 2, 1, 64, 0), "bfloat16", law="mixed_scale"),
        _case((2, 16, 17, 2, 2, 32, 1), "float32", law="mixed_scale"),
        _case((1, 4096, 4096, 16, 2, 256, 1), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((1, 512, 8192, 16, 2, 256, 1), "bfloat16", use="target", note="Qwen3.6 chunked prefill"),
        _case((1, 5184, 5184, 16, 16, 64, 0), "bfloat16", use="target", note="SAM 3.1 global attention"),
        _case((1, 5184, 36288, 8, 8, 32, 0), "bfloat16", use="target", note="SAM 3.1 memory attention, 7 memories"),
    ),
    source="Dao, FlashAttention-2, 2023 (causal alignment at the lower right); transformers sam3 and qwen3_5_moe",
    baselines=("sdpa",),
    rivals=("flash_attn_3", "flashinfer single_prefill"),
)
