"""A whole MoE block after routing: gate and up, SiLU times up, down, sum weighted by the router.

The contract lets the intermediate be rounded to bfloat16 where frameworks do: after gate and up, after the activation
and after down, before the weighted sum. Three independent roundings of mean size 0.4 u give a deviation of about
0.7 u S; the largest of 10^7 elements lies near 5.5 deviations, 4 u S. The factor 8 doubles that; an e4m3 intermediate,
whose u is 16 times larger, exceeds it by far.
"""

from typing import cast

import torch

from kb.validators.operators.draws import mixed, weights
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload

Terms = tuple[torch.Tensor, torch.Tensor]


def _terms(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> Terms:
    """Return the result and S^2, both float64 [num_tokens, hidden_size], expert by expert."""
    wide = x.to(torch.float64)
    total, squares = torch.zeros_like(wide), torch.zeros_like(wide)
    inner = down_weight.shape[2]
    for expert in sorted(set(topk_ids.flatten().tolist())):
        token, slot = torch.nonzero(topk_ids == expert, as_tuple=True)
        product = wide[token] @ gate_up_weight[expert].to(torch.float64).T
        h = torch.nn.functional.silu(product[:, :inner]) * product[:, inner:]
        down = down_weight[expert].to(torch.float64)
        share = topk_weights[token, slot].to(torch.float64).unsqueeze(1)
        y = h @ down.T
        total.index_add_(0, token, share * y)
        squares.index_add_(0, token, share.square() * (h.square() @ down.square().T + y.square()))
    return total, squares


def reference(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return sum over slots of weight * (silu(x gate^T) * (x up^T)) down^T in float64 [num_tokens, hidden_size]."""
    return (_terms(x, gate_up_weight, down_weight, topk_ids, topk_weights)[0],)


def condition(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum over slots of w^2 (sum h^2 d^2 + y^2)): what independent roundings of h and y add up to."""
    return (_terms(x, gate_up_weight, down_weight, topk_ids, topk_weights)[1].sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """6 T k H I; x, y, ids, weights (8 bytes a slot) and 3 H I elements of each of min(E, T k) experts.

    The law ``normal`` hits that many experts. The activations between the products are not essential.
    """
    tokens, hidden, inner = axes["num_tokens"], axes["hidden_size"], axes["intermediate_size"]
    slots = tokens * axes["top_k"]
    moved = 2 * (2 * tokens * hidden + 3 * min(axes["num_experts"], slots) * hidden * inner) + 8 * slots
    return Cost(flops=6 * slots * hidden * inner, essential_bytes=moved)


def _route(tokens: int, experts: int, top_k: int, generator: torch.Generator) -> torch.Tensor:
    """Draw distinct experts per token, skewed, with all min(E, T k) experts hit: int32 [tokens, top_k]."""
    load = torch.arange(1, experts + 1, dtype=torch.float64).pow(-0.8)[torch.randperm(experts, generator=generator)]
    ids = torch.stack([torch.multinomial(load, top_k, generator=generator) for _ in range(tokens)]) if tokens else None
    if ids is None:
        return torch.zeros(0, top_k, dtype=torch.int32)
    # The first rows walk through all experts in turn; consecutive ones are distinct, so a row has no repeats.
    walk = min(tokens, -(-experts // top_k))
    order = torch.randperm(experts, generator=generator)
    ids[:walk] = order[torch.arange(walk * top_k).reshape(walk, top_k) % experts]
    return ids.to(torch.int32)


def _arguments(axes: Axes, dtype: str, generator: torch.Generator, ids: torch.Tensor) -> Arguments:
    experts, hidden, inner = axes["num_experts"], axes["hidden_size"], axes["intermediate_size"]
    gain = torch.exp2(torch.randint(-1, 2, (experts, 1, 1), generator=generator).to(torch.float32))
    gate_up = weights((experts, 2 * inner, hidden), hidden**-0.5, dtype, generator)
    down = weights((experts, hidden, inner), gain * inner**-0.5, dtype, generator)
    logits = torch.randn(axes["num_tokens"], axes["top_k"], generator=generator)
    x = rows(axes["num_tokens"], hidden, dtype, generator)
    return x, gate_up, down, ids, logits.softmax(-1)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Skewed routing that hits min(E, T top_k) experts; renormalised softmax weights."""
    ids = _route(axes["num_tokens"], axes["num_experts"], axes["top_k"], generator)
    return _arguments(axes, dtype, generator, ids)


def clustered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Every token on the last top_k experts: all other groups are empty."""
    last = torch.arange(axes["num_experts"] - axes["top_k"], axes["num_experts"], dtype=torch.int32)
    return _arguments(axes, dtype, generator, last.repeat(axes["num_tokens"], 1))


def empty_experts(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens on every third expert where there are enough of them, each in an order of its own."""
    experts, top_k = axes["num_experts"], axes["top_k"]
    used = torch.arange(experts)[:: 3 if experts >= 3 * top_k else 1]
    orders = [used[torch.randperm(len(used), generator=generator)[:top_k]] for _ in range(axes["num_tokens"])]
    return _arguments(axes, dtype, generator, torch.stack(orders).to(torch.int32))


def one_sided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Router weights of nearly one expert a token, at any place of the row, the others down to exactly zero."""
    x, gate_up, down, ids, shares = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    sharp = torch.softmax(40 * torch.log(shares.clamp_min(1e-30)), -1)
    return x, gate_up, down, ids, torch.where(sharp < 1e-6, 0.0, sharp)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-4 … 2^4 behind a nominal one: SiLU is met where it is linear, curved and shut."""
    _, *rest = normal(axes, dtype, generator)
    x = mixed((axes["num_tokens"], axes["hidden_size"]), generator, spread=4, tail=2)
    return x.to(DTYPES[dtype]), *rest


def moe_axes(tokens: int, hidden: int, inner: int, experts: int, top_k: int) -> dict[str, int]:
    """Return the axes of an MoE block."""
    return {
        "num_tokens": tokens,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_experts": experts,
        "top_k": top_k,
    }


SPEC = Operator(
    name="fused_moe",
    summary="y = sum over top_k of weight * (silu(x @ gate.T) * (x @ up.T)) @ down.T of the routed experts",
    signature="fused_moe(x, gate_up_weight, down_weight, topk_ids, topk_weights)",
    axes=("num_tokens", "hidden_size", "intermediate_size", "num_experts", "top_k"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size")),
        Buffer("gate_up_weight", ("num_experts", "2*intermediate_size", "hidden_size"), doc="gate first", static=True),
        Buffer("down_weight", ("num_experts", "hidden_size", "intermediate_size"), static=True),
        Buffer("topk_ids", ("num_tokens", "top_k"), "int32", "distinct experts of each token"),
        Buffer("topk_weights", ("num_tokens", "top_k"), "float32", "already renormalised"),
    ),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("bfloat16",),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2, operand="bfloat16", c_operand=8),
    cost=cost,
    laws={
        "normal": normal,
        "clustered": clustered,
        "empty_experts": empty_experts,
        "one_sided": one_sided,
        "mixed_scale": mixed_scale,
    },
    workloads=(
        Workload(moe_axes(1, 16, 16, 1, 1), "bfloat16"),
        Workload(moe_axes(0, 32, 16, 4, 2), "bfloat16"),
        Workload(moe_axes(3, 40, 24, 16, 4), "bfloat16", note="fewer slots than experts"),
        Workload(moe_axes(37, 72, 33, 5, 3), "bfloat16", note="odd intermediate size"),
        Workload(moe_axes(29, 67, 40, 7, 2), "bfloat16", "clustered"),
        Workload(moe_axes(130, 48, 64, 6, 2), "bfloat16"),
        Workload(moe_axes(17, 33, 31, 9, 2), "bfloat16", "empty_experts"),
        Workload(moe_axes(15, 48, 17, 5, 3), "bfloat16", "one_sided"),
        Workload(moe_axes(9, 40, 33, 4, 2), "bfloat16", "mixed_scale"),
        Workload(moe_axes(1, 2048, 512, 256, 8), "bfloat16", use="target", note="Qwen3.6 decode"),
        Workload(moe_axes(64, 2048, 512, 256, 8), "bfloat16", use="target", note="Qwen3.6, 64 sequences"),
        Workload(moe_axes(4096, 2048, 512, 256, 8), "bfloat16", use="target", note="Qwen3.6 prefill"),
    ),
    source="Shazeer et al., 2017; Mixtral and Qwen MoE blocks; rounding points as in vLLM's and SGLang's Triton path",
    baselines=("grouped_mm", "matmul_per_expert"),
    rivals=("vllm fused_experts",),
)
