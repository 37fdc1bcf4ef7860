"""Grouped GEMM of an MoE layer: the tokens of every expert, contiguous, times that expert's weight.

The routing laws and the per-group products here also serve the low-bit variants.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import cast

import torch

from kb.validators.operators.draws import signs, weights
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize

Weight = Callable[[int], torch.Tensor]
"""Expert index to its float64 weight [n, k]."""


def groups(x: torch.Tensor, weight: Weight, expert_offsets: torch.Tensor, n: int) -> torch.Tensor:
    """Multiply group by group in float64.

    Args:
        x: [num_tokens_expanded, k], rows sorted by expert.
        weight: Gives the float64 weight [n, k] of an expert; asked only for experts that have tokens.
        expert_offsets: int32 [num_experts + 1], group e is rows offsets[e] … offsets[e + 1] - 1.
        n: Columns of the result.

    Returns:
        float64 [num_tokens_expanded, n].
    """
    y = torch.zeros(x.shape[0], n, dtype=torch.float64, device=x.device)
    bounds = expert_offsets.tolist()
    for expert, (low, high) in enumerate(pairwise(bounds)):
        if high > low:
            y[low:high] = x[low:high].to(torch.float64) @ weight(expert).T
    return y


def group_scale(x: torch.Tensor, weight: Weight, expert_offsets: torch.Tensor, n: int) -> torch.Tensor:
    """Return S = sqrt(sum x^2 w^2) for every element of ``groups``, float64 [num_tokens_expanded, n]."""
    return groups(x.to(torch.float64).square(), lambda e: weight(e).square(), expert_offsets, n).sqrt()


def spread_offsets(num_tokens: int, num_experts: int, generator: torch.Generator) -> torch.Tensor:
    """Draw ragged expert_offsets int32 [num_experts + 1] that hit exactly min(num_experts, num_tokens) experts.

    The rest follows a power law over a random order of the experts, so that a few groups are long; where there are
    fewer tokens than experts, empty groups lie between the others.
    """
    order = torch.randperm(num_experts, generator=generator)
    counts = torch.zeros(num_experts, dtype=torch.int64)
    hit = order[: min(num_experts, num_tokens)]
    counts[hit] = 1
    if num_tokens > num_experts:
        load = torch.arange(1, num_experts + 1, dtype=torch.float64).pow(-1.2)
        extra = torch.multinomial(load, num_tokens - num_experts, replacement=True, generator=generator)
        counts[hit] += torch.bincount(extra, minlength=num_experts)
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def one_expert_offsets(num_tokens: int, num_experts: int) -> torch.Tensor:
    """Return expert_offsets with every token on the middle expert and all other groups empty."""
    at = torch.arange(num_experts + 1)
    return torch.where(at > num_experts // 2, num_tokens, 0).to(torch.int32)


def rows(num_rows: int, k: int, dtype: str, generator: torch.Generator) -> torch.Tensor:
    """Draw activations [num_rows, k] with rows of scale 2^-3 … 2^3."""
    scale = torch.exp2(torch.randint(-3, 4, (num_rows, 1), generator=generator).to(torch.float32))
    return (torch.randn(num_rows, k, generator=generator) * scale).to(DTYPES[dtype])


def reference(x: torch.Tensor, weight: torch.Tensor, expert_offsets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x of each group times the group's weight transposed, in float64."""
    return (groups(x, lambda e: weight[e].to(torch.float64), expert_offsets, weight.shape[1]),)


def condition(x: torch.Tensor, weight: torch.Tensor, expert_offsets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum x^2 w^2)."""
    return (group_scale(x, lambda e: weight[e].to(torch.float64), expert_offsets, weight.shape[1]),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 T N K; x, y and the weights of min(E, T) experts, which the law ``normal`` hits, and E + 1 int32 offsets."""
    tokens, experts, n, k = (axes[a] for a in SPEC.axes)
    elements = tokens * (n + k) + min(experts, tokens) * n * k
    return Cost(flops=2 * tokens * n * k, essential_bytes=elements * itemsize(dtype) + 4 * (experts + 1))


def _arguments(axes: Axes, dtype: str, generator: torch.Generator, offsets: torch.Tensor) -> Arguments:
    experts, n, k = axes["num_experts"], axes["n"], axes["k"]
    x = rows(axes["num_tokens_expanded"], k, dtype, generator)
    gain = torch.exp2(torch.randint(-2, 3, (experts, 1, 1), generator=generator).to(torch.float32))
    return x, weights((experts, n, k), gain * k**-0.5, dtype, generator), offsets


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ragged routing over min(E, T) experts; experts differ in scale, so that a wrong expert shows."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    return _arguments(axes, dtype, generator, offsets)


def one_expert(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All tokens on the middle expert: the tile bound of a balanced guess overflows here."""
    offsets = one_expert_offsets(axes["num_tokens_expanded"], axes["num_experts"])
    return _arguments(axes, dtype, generator, offsets)


def sparse_offsets(num_tokens: int, num_experts: int, generator: torch.Generator) -> torch.Tensor:
    """Draw expert_offsets that use every third expert at most; the first and, if there are others, the last are empty.

    Most groups hold a single token, one holds the rest.
    """
    used = torch.arange(min(1, num_experts - 1), max(2, num_experts - 1), 3)[: max(num_tokens, 1)]
    counts = torch.zeros(num_experts, dtype=torch.int64)
    counts[used] = min(num_tokens, 1)
    counts[used[int(torch.randint(0, len(used), (1,), generator=generator))]] += num_tokens - int(counts.sum())
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def empty_groups(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens on every third expert only: empty groups at both ends and between, most others of a single token."""
    offsets = sparse_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    return _arguments(axes, dtype, generator, offsets)


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Nearly all energy in the last eighth of k."""
    x, weight, offsets = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor], normal(axes, dtype, generator))
    early = torch.arange(axes["k"]) < axes["k"] - max(1, axes["k"] // 8)
    return torch.where(early, x / 64, x), weight, offsets


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    x = signs((axes["num_tokens_expanded"], axes["k"]), generator)
    weight = signs((axes["num_experts"], axes["n"], axes["k"]), generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), offsets


def moe_axes(tokens: int, experts: int, n: int, k: int) -> dict[str, int]:
    """Return the axes of a grouped GEMM; ``tokens`` counts every token once for each of its experts."""
    return {"num_tokens_expanded": tokens, "num_experts": experts, "n": n, "k": k}


SPEC = Operator(
    name="grouped_gemm",
    summary="y[rows of expert e] = x[rows of expert e] @ weight[e].T, ragged groups",
    signature="grouped_gemm(x, weight, expert_offsets)",
    axes=("num_tokens_expanded", "num_experts", "n", "k"),
    inputs=(
        Buffer("x", ("num_tokens_expanded", "k"), doc="rows sorted by expert"),
        Buffer("weight", ("num_experts", "n", "k"), doc="k contiguous", static=True),
        Buffer("expert_offsets", ("num_experts+1",), "int32", "first row of every group, then the number of rows"),
    ),
    outputs=(Buffer("y", ("num_tokens_expanded", "n")),),
    dtypes=("bfloat16", "float16", "float32"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "one_expert": one_expert,
        "empty_groups": empty_groups,
        "late_block": late_block,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        Workload(moe_axes(1, 1, 1, 1), "float32"),
        Workload(moe_axes(0, 3, 16, 32), "bfloat16"),
        Workload(moe_axes(5, 8, 48, 72), "bfloat16", note="fewer tokens than experts"),
        Workload(moe_axes(67, 5, 33, 40), "float16", note="odd n"),
        Workload(moe_axes(83, 4, 70, 129), "bfloat16", note="odd k: rows are not 16-byte aligned"),
        Workload(moe_axes(37, 6, 40, 96), "float32", "one_expert"),
        Workload(moe_axes(150, 3, 136, 64), "bfloat16"),
        Workload(moe_axes(31, 7, 33, 40), "bfloat16", "empty_groups"),
        Workload(moe_axes(17, 9, 15, 65), "float32", "empty_groups"),
        Workload(moe_axes(33, 4, 31, 129), "float16", "late_block"),
        Workload(moe_axes(31, 5, 33, 127), "float32", "integers"),
        Workload(moe_axes(67, 3, 17, 80), "bfloat16", "integers"),
        Workload(moe_axes(8, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 1 token"),
        Workload(moe_axes(512, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 64 tokens"),
        Workload(moe_axes(32768, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 4096 tokens"),
        Workload(moe_axes(32768, 256, 2048, 512), "bfloat16", use="target", note="Qwen3.6 down, 4096 tokens"),
    ),
    source="Shazeer et al., Outrageously Large Neural Networks, 2017; layout as in vLLM and SGLang",
    baselines=("grouped_mm", "matmul_per_expert"),
)
