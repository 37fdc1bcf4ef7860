"""Gated delta rule over whole sequences: S = exp(g) S; u = beta (v - S^T k); S = S + k u^T; y = scale S^T q.

S, the condition scale, is measured and not derived: the recurrence is run again with every rounding replaced by an
independent relative perturbation of unit variance, and S is the root mean square of what comes out. That follows errors
through later tokens with the right sign and contraction, where a norm bound would be loose by sqrt(head_dim) for a
repeated key and a sum of squares would be too tight. Two sorts of rounding are kept apart: those in float32, and those
of the operands of a product (u, v, S where it is multiplied, and, since kernels work in chunks, the scores q k_s and
k k_s of the last 64 tokens), which may be rounded to the workload's dtype. The scores matter for repeated keys: the
recurrence corrects an old error at the next write of the same key, a chunk of scores does not.
"""

from collections.abc import Callable

import torch

from kb.validators.operators.gated_delta_draws import LAWS
from kb.validators.operators.spec import (
    DTYPES,
    UNIT_ROUNDOFF,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Workload,
    generator,
    itemsize,
)

C_ACC = 200.0
"""On u(float32) * S; the sums are as long as head_dim, as in any dot product."""
C_DATA = 8.0
"""On u(dtype): an honest rounding has 0.42 of the deviation assumed, chunked forms round about three times as often.

An emulated chunked form in bfloat16 or float16 reaches 0.6 bounds, q, k and v rounded to float8 at least 2.2."""
REPLICAS = 4
"""Perturbed runs; half of S^2 is averaged over the value dimension as well, so that no element is unluckily small."""
CHUNK = 64
"""Tokens back whose scores may be rounded one by one."""
STEP = 2.0**-20
"""Size of the perturbations: small enough to be linear, large enough to stand out of float64."""

Jitter = Callable[[torch.Tensor], torch.Tensor]


def spread_heads(x: torch.Tensor, num_v_heads: int) -> torch.Tensor:
    """Repeat key heads in float64 so that value head h finds key head h // (num_v_heads / num_heads); axis -2."""
    return x.double().repeat_interleave(num_v_heads // x.shape[-2], -2)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return y and the last state in float64, token by token; shapes as in ``SPEC``."""
    q, k, v = spread_heads(q, v.shape[2]), spread_heads(k, v.shape[2]), v.double()
    memory = state.double().clone()
    y = torch.zeros(v.shape, dtype=torch.float64)
    for t in range(v.shape[1]):
        memory = memory * g[:, t].double().exp()[..., None, None]
        u = beta[:, t].double()[..., None] * (v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], memory))
        memory = memory + k[:, t][..., :, None] * u[..., None, :]
        y[:, t] = scale * torch.einsum("bhk,bhkv->bhv", q[:, t], memory)
    return y, memory


def _wobble(x: torch.Tensor, k: torch.Tensor, u: torch.Tensor, fade: torch.Tensor, operand: Jitter) -> torch.Tensor:
    """Error of sum_s fade_s (x k_s) u_s if every term is rounded; x [b, h, k], k and u [b, s, h, .], fade [b, s, h]."""
    terms = (fade * torch.einsum("bhk,bshk->bsh", x, k))[..., None] * u
    return (operand(terms) - terms).sum(1)


def _perturbed(arguments: tuple[torch.Tensor, ...], scale: float, kept: Jitter, operand: Jitter) -> list[torch.Tensor]:
    """The recurrence with ``kept`` on what stays in the state and ``operand`` on what enters a product."""
    q, k, v, g, beta, memory = arguments
    y, u = torch.zeros(v.shape, dtype=torch.float64), torch.zeros(v.shape, dtype=torch.float64)
    total = g.cumsum(1)
    for t in range(v.shape[1]):
        past = slice(max(0, t + 1 - CHUNK), t + 1)
        fade = (total[:, t : t + 1] - total[:, past]).exp()
        memory = kept(memory * g[:, t].exp()[..., None, None])
        seen = torch.einsum("bhk,bhkv->bhv", k[:, t], operand(memory))
        # u of this token is still zero here, so only earlier ones count.
        seen = seen + _wobble(k[:, t], k[:, past], u[:, past], fade, operand)
        u[:, t] = operand(beta[:, t][..., None] * (operand(v[:, t]) - seen))
        memory = kept(memory + k[:, t][..., :, None] * u[:, t][..., None, :])
        wobble = _wobble(q[:, t], k[:, past], u[:, past], fade, operand)
        y[:, t] = scale * (torch.einsum("bhk,bhkv->bhv", q[:, t], operand(memory)) + wobble)
    return [y, memory]


def _noise(size: int) -> Jitter:
    """Multiply by 1 + STEP * normal; the numbers come from one bank at random offsets: cheap and repeatable."""
    source = generator(0)
    bank = torch.randn(2 * size + 1, generator=source, dtype=torch.float64)

    def jitter(x: torch.Tensor) -> torch.Tensor:
        start = int(torch.randint(bank.numel() - x.numel() + 1, (1,), generator=source))
        return x * (1 + STEP * bank[start : start + x.numel()].view(x.shape))

    return jitter


def condition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return S of y and of the state, as the module docstring says."""
    exact = reference(q, k, v, g, beta, state, scale)
    plain = (x.double() for x in (v, g, beta, state))
    one = (spread_heads(q, v.shape[2]), spread_heads(k, v.shape[2]), *plain)
    many = tuple(x.repeat(REPLICAS, *[1] * (x.dim() - 1)) for x in one)
    jitter = _noise(many[-1].numel() + many[2].numel() + CHUNK * many[2][:, :1].numel())

    def measure(kept: Jitter) -> list[torch.Tensor]:
        made = []
        for got, want in zip(_perturbed(many, scale, kept, jitter), exact, strict=True):
            error = ((got.view(REPLICAS, *want.shape) - want) / STEP).square().mean(0)
            made.append((0.5 * (error + error.mean(-1, keepdim=True))).sqrt())
        return made

    fine = measure(jitter)
    if v.dtype == torch.float32:
        return tuple(fine)
    name = next(name for name, kind in DTYPES.items() if kind == v.dtype)
    factor = C_DATA * UNIT_ROUNDOFF[name] / (C_ACC * UNIT_ROUNDOFF["float32"])
    return tuple(a + factor * b for a, b in zip(fine, measure(lambda x: x), strict=True))


def cost(axes: Axes, dtype: str) -> Cost:
    """7 operations a token and state element (decay, read, update, output); every input and output once."""
    tokens = axes["batch_size"] * axes["seq_len"]
    keys, values = axes["num_heads"] * axes["head_dim"], axes["num_v_heads"] * axes["head_dim_v"]
    state = axes["num_v_heads"] * axes["head_dim"] * axes["head_dim_v"]
    moved = tokens * ((2 * keys + 2 * values) * itemsize(dtype) + 8 * axes["num_v_heads"])
    return Cost(flops=7 * tokens * state, essential_bytes=moved + 8 * axes["batch_size"] * state)


AXES = ("batch_size", "seq_len", "num_heads", "num_v_heads", "head_dim", "head_dim_v")


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


_QK = ("batch_size", "seq_len", "num_heads", "head_dim")
_V = ("batch_size", "seq_len", "num_v_heads", "head_dim_v")
_GATE = ("batch_size", "seq_len", "num_v_heads")
_STATE = ("batch_size", "num_v_heads", "head_dim", "head_dim_v")

SPEC = Operator(
    name="gated_delta_prefill",
    summary="per token: S = exp(g) S, u = beta (v - S^T k), S += k u^T, y = scale S^T q",
    signature="gated_delta_prefill(q, k, v, g, beta, state, scale)",
    axes=AXES,
    inputs=(
        Buffer("q", _QK, doc="already L2-normalised; leading strides are free"),
        Buffer("k", _QK, doc="already L2-normalised; value head h uses key head h // (num_v_heads / num_heads)"),
        Buffer("v", _V),
        Buffer("g", _GATE, "float32", "logarithm of the decay, at most 0"),
        Buffer("beta", _GATE, "float32", "write strength, 0 … 1"),
        Buffer("state", _STATE, "float32", "before the first token; key dimension first, value dimension contiguous"),
        Scalar("scale", None, "factor on y, usually head_dim^-0.5"),
    ),
    outputs=(Buffer("y", _V), Buffer("new_state", _STATE, "float32", "after the last token, laid out as state")),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws=LAWS,
    workloads=(
        _case((1, 1, 1, 1, 16, 16), "float32"),
        _case((1, 0, 1, 2, 16, 16), "bfloat16", note="no token: the state is returned"),
        _case((1, 67, 1, 2, 32, 32), "bfloat16"),
        _case((2, 70, 1, 1, 32, 16), "float32", law="repeated_keys"),
        _case((1, 129, 1, 2, 16, 24), "float16", law="strided"),
        _case((1, 66, 1, 1, 128, 128), "bfloat16", law="repeated_keys"),
        _case((1, 33, 1, 2, 16, 32), "float32", law="extreme_gates"),
        _case((1, 65, 1, 1, 32, 17), "bfloat16", law="extreme_gates"),
        _case((2, 31, 1, 2, 16, 16), "float32", law="mixed_scale"),
        _case((1, 17, 2, 2, 32, 33), "bfloat16", law="mixed_scale"),
        _case((1, 63, 1, 1, 16, 16), "float16", law="remembering"),
        _case((1, 512, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((1, 4096, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((8, 4096, 16, 32, 128, 128), "bfloat16", use="target", note="Qwen3.6 prefill, eight prompts"),
    ),
    source="Yang et al., Gated Delta Networks, 2024 (arXiv 2412.06464); transformers qwen3_5_moe",
    baselines=("chunked",),
    rivals=("flash-linear-attention chunk_gated_delta_rule", "flashinfer gated delta rule prefill"),
)
