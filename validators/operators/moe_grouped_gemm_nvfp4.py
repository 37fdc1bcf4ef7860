"""Grouped GEMM of an MoE layer with NVFP4 expert weights and 16-bit activations.

The axis ``activation_bits`` says what the caller promises about x. At 16 nothing: W4A16, the exact weights times x.
At 4, x is what a quantiser left: every 16 consecutive elements of a row are e2m1 * s with an e4m3 scale s from 2^-4
to 2^4, and at least one of them has magnitude 6 s. Then NVFP4 quantisation of x with global scale 1 loses nothing, a
kernel on FP4 matrix units is exact too, and the same bound judges both; what a quantiser loses on other x is judged by
quantize_nvfp4.
"""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import e2m1_decode, nvfp4_dequantize
from kb.validators.operators.gemm_nvfp4 import random_nvfp4, whole_nvfp4
from kb.validators.operators.grouped_gemm import (
    Weight,
    group_scale,
    groups,
    moe_axes,
    one_expert_offsets,
    rows,
    sparse_offsets,
    spread_offsets,
)
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Workload,
    itemsize,
)


def _weight(packed: torch.Tensor, scale: torch.Tensor, outer: torch.Tensor) -> Weight:
    return lambda e: nvfp4_dequantize(packed[e], scale[e], outer[e])


def reference(
    x: torch.Tensor,
    weight_packed: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return x of each group times the group's dequantised weight transposed, in float64."""
    weight = _weight(weight_packed, weight_scale, weight_global_scale)
    return (groups(x, weight, expert_offsets, weight_packed.shape[1]),)


def condition(
    x: torch.Tensor,
    weight_packed: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum x^2 w^2) over the dequantised weights."""
    weight = _weight(weight_packed, weight_scale, weight_global_scale)
    return (group_scale(x, weight, expert_offsets, weight_packed.shape[1]),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 T N K; x, y and offsets, and of min(E, T) experts N K / 2 + N K / 16 + 4 bytes of weight."""
    tokens, experts, n, k = (axes[a] for a in ("num_tokens_expanded", "num_experts", "n", "k"))
    weights = min(experts, tokens) * (n * k // 2 + n * k // 16 + 4)
    moved = tokens * (n + k) * itemsize(dtype) + weights + 4 * (experts + 1)
    return Cost(flops=2 * tokens * n * k, essential_bytes=moved)


def quantised_rows(num_rows: int, k: int, dtype: str, generator: torch.Generator) -> torch.Tensor:
    """Draw x [num_rows, k] on an NVFP4 grid with global scale 1 and a magnitude 6 in every block of 16."""
    code = torch.randint(0, 16, (num_rows, k // 16, 16), generator=generator)
    code[..., 5] = code[..., 5] | 7
    scale = torch.randint(0x20, 0x51, (num_rows, k // 16, 1), generator=generator, dtype=torch.uint8)
    x = e2m1_decode(code) * scale.view(torch.float8_e4m3fn).to(torch.float64)
    return x.flatten(1).to(DTYPES[dtype])


def _arguments(axes: Axes, dtype: str, generator: torch.Generator, offsets: torch.Tensor) -> Arguments:
    draw = quantised_rows if axes["activation_bits"] == 4 else rows
    x = draw(axes["num_tokens_expanded"], axes["k"], dtype, generator)
    return x, *random_nvfp4(axes["num_experts"], axes["n"], axes["k"], generator), offsets


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ragged routing that hits min(E, T) experts; every expert has its own global scale."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    return _arguments(axes, dtype, generator, offsets)


def one_expert(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All tokens on the middle expert."""
    offsets = one_expert_offsets(axes["num_tokens_expanded"], axes["num_experts"])
    return _arguments(axes, dtype, generator, offsets)


def empty_groups(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Tokens on every third expert only: empty groups at both ends and between, most others of a single token."""
    offsets = sparse_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    return _arguments(axes, dtype, generator, offsets)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-6 … 2^6 behind a nominal one, the last eighth of k 16 times the rest; 16 bits only."""
    _, *weights = normal(axes, dtype, generator)
    x = mixed((axes["num_tokens_expanded"], axes["k"]), generator, spread=6)
    return x.to(DTYPES[dtype]), *weights


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers on both sides, in any order the same sum; 16 bits only."""
    offsets = spread_offsets(axes["num_tokens_expanded"], axes["num_experts"], generator)
    x = signs((axes["num_tokens_expanded"], axes["k"]), generator).to(DTYPES[dtype])
    return x, *whole_nvfp4(axes["num_experts"], axes["n"], axes["k"], generator), offsets


def _axes(tokens: int, experts: int, n: int, k: int, bits: int = 16) -> dict[str, int]:
    return {**moe_axes(tokens, experts, n, k), "activation_bits": bits}


SPEC = Operator(
    name="moe_grouped_gemm_nvfp4",
    summary="y[rows of expert e] = x[rows of expert e] @ dequantise(weight[e]).T, NVFP4 weights, ragged groups",
    signature="moe_grouped_gemm_nvfp4(x, weight_packed, weight_scale, weight_global_scale, expert_offsets)",
    axes=("num_tokens_expanded", "num_experts", "n", "k", "activation_bits"),
    inputs=(
        Buffer("x", ("num_tokens_expanded", "k"), doc="rows sorted by expert; see activation_bits"),
        Buffer("weight_packed", ("num_experts", "n", "k/2"), "uint8", "e2m1 pairs, even k in the low nibble", True),
        Buffer("weight_scale", ("num_experts", "n", "k/16"), "float8_e4m3fn", "non-negative, linear layout", True),
        Buffer("weight_global_scale", ("num_experts",), "float32", "multiplies: value = e2m1 * scale * global", True),
        Buffer("expert_offsets", ("num_experts+1",), "int32", "first row of every group, then the number of rows"),
    ),
    outputs=(Buffer("y", ("num_tokens_expanded", "n")),),
    dtypes=("bfloat16", "float16"),
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
        Workload(_axes(1, 1, 1, 16), "bfloat16"),
        Workload(_axes(0, 3, 16, 32), "bfloat16"),
        Workload(_axes(5, 8, 48, 80), "bfloat16", note="fewer tokens than experts"),
        Workload(_axes(67, 5, 33, 144), "float16", note="odd n, k is 9 blocks"),
        Workload(_axes(37, 6, 40, 96), "bfloat16", "one_expert"),
        Workload(_axes(150, 3, 136, 64), "bfloat16"),
        Workload(_axes(21, 4, 40, 128, 4), "bfloat16", note="x on an NVFP4 grid"),
        Workload(_axes(31, 7, 33, 64), "bfloat16", "empty_groups"),
        Workload(_axes(17, 3, 15, 96), "bfloat16", "mixed_scale"),
        Workload(_axes(33, 5, 31, 128), "float16", "integers"),
        Workload(_axes(15, 2, 17, 64), "bfloat16", "integers"),
        Workload(_axes(8, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 1 token"),
        Workload(_axes(64, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 8 tokens"),
        Workload(_axes(512, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 64 tokens"),
        Workload(_axes(512, 256, 2048, 512), "bfloat16", use="target", note="Qwen3.6 down, 64 tokens"),
        Workload(_axes(32768, 256, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 gate+up, 4096 tokens"),
        Workload(_axes(32768, 256, 1024, 2048, 4), "bfloat16", use="target", note="the same as W4A4"),
    ),
    source="NVFP4 as in NVIDIA's PTX ISA (block scaling) and ModelOpt checkpoints; targets: Qwen3.6-35B-A3B-NVFP4",
    baselines=("dequantised_grouped_mm", "dequantised_matmul_per_expert"),
    rivals=("weights dequantised once, ahead of all calls, and torch._grouped_mm",),
)
