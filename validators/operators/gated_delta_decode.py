"""Gated delta rule, one token a sequence; everything between the inputs and the outputs is float32."""

import torch

from kb.validators.operators import gated_delta_draws
from kb.validators.operators.gated_delta_prefill import spread_heads
from kb.validators.operators.spec import (
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Law,
    Operator,
    Scalar,
    Workload,
    itemsize,
)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return y and the new state in float64; shapes as in ``SPEC``."""
    query, key = spread_heads(q, v.shape[1]), spread_heads(k, v.shape[1])
    memory = state.double() * g.double().exp()[..., None, None]
    u = beta.double()[..., None] * (v.double() - (key[..., None] * memory).sum(-2))
    memory = memory + key[..., None] * u[..., None, :]
    return scale * (query[..., None] * memory).sum(-2), memory


def condition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return S of y and of the state.

    An error of u moves row i of the state by k_i and y by (q k) at once, so it enters y through the whole product q k;
    errors of single state elements enter y independently. exp(g) has a relative error that grows with |g|.
    """
    query, key = spread_heads(q, v.shape[1])[..., None], spread_heads(k, v.shape[1])[..., None]
    decay = g.double()[..., None, None]
    kept = (state.double() * decay.exp() * (1 + decay.abs())).square()
    strength = beta.double()[..., None].square()
    u = strength * (v.double().square() + (key.square() * kept).sum(-2))
    seen = (key * state.double() * decay.exp()).sum(-2)
    u = (u + strength * (v.double() - seen).square())[..., None, :]
    alone = kept + key.square() * u
    through = (query * key).sum(-2).square() * u[..., 0, :]
    return abs(scale) * ((query.square() * alone).sum(-2) + through).sqrt(), alone.sqrt()


def cost(axes: Axes, dtype: str) -> Cost:
    """7 operations a state element; the float32 state read and written once, vectors and gates once."""
    keys, values = axes["num_heads"] * axes["head_dim"], axes["num_v_heads"] * axes["head_dim_v"]
    state = axes["num_v_heads"] * axes["head_dim"] * axes["head_dim_v"]
    each = (2 * keys + 2 * values) * itemsize(dtype) + 8 * axes["num_v_heads"] + 8 * state
    return Cost(flops=7 * axes["num_seqs"] * state, essential_bytes=axes["num_seqs"] * each)


def _one_token(law: Law, axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    made = law({**axes, "batch_size": axes["num_seqs"], "seq_len": 1}, dtype, generator)
    *tokens, state, scale = made
    return *(x[:, 0] for x in tokens if isinstance(x, torch.Tensor)), state, scale


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """One token of the prefill law: unit q and k, decays from almost 0 to almost 1, a state that is not zero."""
    return _one_token(gated_delta_draws.normal, axes, dtype, generator)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but q, k and v are slices of one buffer, as the convolution before them leaves them."""
    return _one_token(gated_delta_draws.strided, axes, dtype, generator)


def extreme_gates(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gates at their ends: no decay or all of it (g of 0 or -20), nothing or all written (beta of 0 or 1)."""
    return _one_token(gated_delta_draws.extreme_gates, axes, dtype, generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Values and rows of the state of scale 2^-6 … 2^6, the first of which look nominal."""
    return _one_token(gated_delta_draws.mixed_scale, axes, dtype, generator)


def remembering(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """No decay and a state of scale 32, beside which the new token is small."""
    return _one_token(gated_delta_draws.remembering, axes, dtype, generator)


AXES = ("num_seqs", "num_heads", "num_v_heads", "head_dim", "head_dim_v")


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


_QK = ("num_seqs", "num_heads", "head_dim")
_V = ("num_seqs", "num_v_heads", "head_dim_v")
_STATE = ("num_seqs", "num_v_heads", "head_dim", "head_dim_v")

SPEC = Operator(
    name="gated_delta_decode",
    summary="S = exp(g) S, u = beta (v - S^T k), S += k u^T, y = scale S^T q, one token a sequence",
    signature="gated_delta_decode(q, k, v, g, beta, state, scale)",
    axes=AXES,
    inputs=(
        Buffer("q", _QK, doc="already L2-normalised; leading strides are free"),
        Buffer("k", _QK, doc="already L2-normalised; value head h uses key head h // (num_v_heads / num_heads)"),
        Buffer("v", _V),
        Buffer("g", ("num_seqs", "num_v_heads"), "float32", "logarithm of the decay, at most 0"),
        Buffer("beta", ("num_seqs", "num_v_heads"), "float32", "write strength, 0 … 1"),
        Buffer("state", _STATE, "float32", "key dimension first, value dimension contiguous"),
        Scalar("scale", None, "factor on y, usually head_dim^-0.5"),
    ),
    outputs=(Buffer("y", _V), Buffer("new_state", _STATE, "float32", "laid out as state")),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=100, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "strided": strided,
        "extreme_gates": extreme_gates,
        "mixed_scale": mixed_scale,
        "remembering": remembering,
    },
    workloads=(
        _case((1, 1, 1, 1, 1), "float32"),
        _case((0, 1, 2, 16, 16), "bfloat16"),
        _case((3, 2, 4, 32, 32), "bfloat16"),
        _case((2, 1, 3, 40, 24), "float32"),
        _case((5, 2, 2, 16, 80), "float16", law="strided"),
        _case((1, 1, 2, 128, 128), "bfloat16", law="strided"),
        _case((3, 2, 2, 33, 17), "float32", law="extreme_gates"),
        _case((2, 1, 2, 16, 31), "bfloat16", law="extreme_gates"),
        _case((3, 1, 2, 17, 33), "float32", law="mixed_scale"),
        _case((2, 2, 4, 32, 16), "bfloat16", law="mixed_scale"),
        _case((3, 1, 1, 31, 15), "float16", law="remembering"),
        _case((1, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((8, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((64, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((256, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 decode"),
    ),
    source="Yang et al., Gated Delta Networks, 2024 (arXiv 2412.06464); transformers qwen3_5_moe",
    baselines=("one_step_compiled", "one_step"),
    rivals=("flash-linear-attention fused_recurrent_gated_delta_rule", "flashinfer gated delta rule decode"),
)
