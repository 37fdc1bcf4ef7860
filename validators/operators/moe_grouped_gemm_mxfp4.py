"""Grouped GEMM of an MoE layer with MXFP4 expert weights and bfloat16 activations."""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import mxfp4_dequantize
from kb.validators.operators.gemm_mxfp4 import random_mxfp4, whole_mxfp4
from kb.validators.operators.grouped_gemm import (
    group_scale,
    groups,
    moe_axes,
    one_expert_offsets,
    rows,
    sparse_offsets,
    spread_offsets,
)
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload


def reference(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, expert_offsets: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return x of each group times the group's dequantised weight transposed, in float64."""
    n = weight_packed.shape[1]
    return (groups(x, lambda e: mxfp4_dequantize(weight_packed[e], weight_scale[e]), expert_offsets, n),)


def condition(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, expert_offsets: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum x^2 w^2) over the dequantised weights."""
    n = weight_packed.shape[1]
    return (group_scale(x, lambda e: mxfp4_dequantize(weight_packed[e], weight_scale[e]), expert_offsets, n),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 T N K; x, y (two bytes an element) and offsets, and of min(E, T) experts N K / 2 + N K / 32 bytes."""
    tokens, experts, n, k = (axes[a] for a in ("num_tokens_expanded", "num_experts", "n", "k"))
    weights = min(experts, tokens) * (n * k // 2 + n * k // 32)
    return Cost(flops=2 * tokens * n * k, essential_bytes=2 * tokens * (n + k) + weights + 4 * (experts + 1))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ragged routing that hits min(E, T) experts."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    x = rows(axes["num_tokens_expanded"], axes["k"], dtype, generator)
    return x, *random_mxfp4(axes["num_experts"], axes["n"], axes["k"], generator), offsets


def one_expert(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All tokens on the middle expert."""
    x, packed, scale, _ = normal(axes, dtype, generator)
    return x, packed, scale, one_expert_offsets(axes["num_tokens_expanded"], axes["num_experts"])


def empty_groups(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens on every third expert only: empty groups at both ends and between, most others of a single token."""
    x, packed, scale, _ = normal(axes, dtype, generator)
    return x, packed, scale, sparse_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-8 … 2^8 behind a nominal one; the last eighth of k is 16 times the rest."""
    _, *weights = normal(axes, dtype, generator)
    return mixed((axes["num_tokens_expanded"], axes["k"]), generator).to(DTYPES[dtype]), *weights


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers on both sides: every order of summation gives the same sum."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    x = signs((axes["num_tokens_expanded"], axes["k"]), generator).to(DTYPES[dtype])
    return x, *whole_mxfp4(axes["num_experts"], axes["n"], axes["k"], generator), offsets


SPEC = Operator(
    name="moe_grouped_gemm_mxfp4",
    summary="y[rows of expert e] = x[rows of expert e] @ dequantise(weight[e]).T, MXFP4 weights, ragged groups",
    signature="moe_grouped_gemm_mxfp4(x, weight_packed, weight_scale, expert_offsets)",
    axes=("num_tokens_expanded", "num_experts", "n", "k"),
    inputs=(
        Buffer("x", ("num_tokens_expanded", "k"), doc="rows sorted by expert"),
        Buffer("weight_packed", ("num_experts", "n", "k/2"), "uint8", "e2m1 pairs, even k in the low nibble", True),
        Buffer("weight_scale", ("num_experts", "n", "k/32"), "uint8", "e8m0: 2^(byte - 127); linear layout", True),
        Buffer("expert_offsets", ("num_experts+1",), "int32", "first row of every group, then the number of rows"),
    ),
    outputs=(Buffer("y", ("num_tokens_expanded", "n")),),
    dtypes=("bfloat16",),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "one_expert": one_expert,
        "empty_groups": empty_groups,
        "mixed_scale": mixed_scale,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        Workload(moe_axes(1, 1, 1, 32), "bfloat16"),
        Workload(moe_axes(0, 3, 16, 32), "bfloat16"),
        Workload(moe_axes(5, 8, 48, 96), "bfloat16", note="fewer tokens than experts"),
        Workload(moe_axes(67, 5, 33, 160), "bfloat16", note="odd n, k is 5 blocks"),
        Workload(moe_axes(37, 6, 40, 96), "bfloat16", "one_expert"),
        Workload(moe_axes(150, 3, 136, 64), "bfloat16"),
        Workload(moe_axes(31, 7, 33, 64), "bfloat16", "empty_groups"),
        Workload(moe_axes(17, 3, 15, 96), "bfloat16", "mixed_scale"),
        Workload(moe_axes(33, 5, 31, 128), "bfloat16", "integers"),
        # Not one token: it meets 8 experts and is judged as small, yet brings 272 MiB of weights, more than small may.
        Workload(moe_axes(64, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 shape, gate+up, 8 tokens"),
        Workload(moe_axes(512, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 shape, gate+up, 64 tokens"),
        Workload(moe_axes(32768, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 shape, 4096 tokens"),
    ),
    source="OCP Microscaling Formats (MX) specification 1.0",
    baselines=("dequantised_grouped_mm", "dequantised_matmul_per_expert"),
    rivals=("weights dequantised once, ahead of all calls, and torch._grouped_mm",),
)
