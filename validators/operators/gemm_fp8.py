"""FP8 GEMM with one scale a tensor: y = (a @ b.T) * a_scale * b_scale, bfloat16 out.

The contract lets the matrix unit keep its own partial sums over a few hundred elements of k. On Hopper these carry
about 14 bits and are truncated each 32 elements: promotion to float32 every 128 errs by at most some 4 u(float16) S
over 5e7 elements (see ``gemm_fp8_block``), every 512 by twice that, and 16 is the allowance. A sum that stays in the
matrix unit for all of k >= 2048 ("fast accumulation") passes it, as do an fp4 operand and a bfloat16 sum.
"""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import fp8_quantize_tensor
from kb.validators.operators.gemm import gemm_axes
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload


def reference(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return (a @ b.T) * a_scale * b_scale in float64; a [m, k], b [n, k]."""
    return (a.to(torch.float64) @ b.to(torch.float64).T * a_scale.to(torch.float64) * b_scale.to(torch.float64),)


def condition(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum a^2 b^2) * a_scale * b_scale."""
    squares = a.to(torch.float64).square() @ b.to(torch.float64).square().T
    return (squares.sqrt() * a_scale.to(torch.float64) * b_scale.to(torch.float64),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 M N K; one byte an element of a and b, two an element of y, two float32 scales."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    return Cost(flops=2 * m * n * k, essential_bytes=m * k + n * k + 2 * m * n + 8)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Both operands quantised from random data by their largest element; rows of a of mixed scale."""
    a, a_scale = fp8_quantize_tensor(rows(axes["m"], axes["k"], "float32", generator))
    b, b_scale = fp8_quantize_tensor(torch.randn(axes["n"], axes["k"], generator=generator) * axes["k"] ** -0.5)
    return a, b, a_scale, b_scale


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Nearly all energy in the last eighth of k."""
    wide = rows(axes["m"], axes["k"], "float32", generator)
    early = torch.arange(axes["k"]) < axes["k"] - max(1, axes["k"] // 8)
    a, a_scale = fp8_quantize_tensor(torch.where(early, wide / 64, wide))
    b, b_scale = fp8_quantize_tensor(torch.randn(axes["n"], axes["k"], generator=generator))
    return a, b, a_scale, b_scale


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of both operands of scale 2^-3 … 2^3 behind nominal ones, so that one scale leaves subnormals."""
    a, a_scale = fp8_quantize_tensor(mixed((axes["m"], axes["k"]), generator, spread=3, tail=2))
    b, b_scale = fp8_quantize_tensor(mixed((axes["n"], axes["k"]), generator, spread=3, tail=2))
    return a, b, a_scale, b_scale


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers and scales that are powers of two: every order of summation gives the same sum."""
    a, b = (signs((axes[one], axes["k"]), generator).to(torch.float8_e4m3fn) for one in ("m", "n"))
    a_scale, b_scale = torch.exp2(torch.randint(-4, 4, (2, 1), generator=generator).to(torch.float32)).unbind(0)
    return a, b, a_scale.clone(), b_scale.clone()


SPEC = Operator(
    name="gemm_fp8",
    summary="y = (a @ b.T) * a_scale * b_scale, e4m3 operands, one scale a tensor",
    signature="gemm_fp8(a, b, a_scale, b_scale)",
    axes=("m", "n", "k"),
    inputs=(
        Buffer("a", ("m", "k"), "float8_e4m3fn"),
        Buffer("b", ("n", "k"), "float8_e4m3fn", "k contiguous: fp8 matrix units take K-major operands only", True),
        Buffer("a_scale", ("1",), "float32", "multiplies"),
        Buffer("b_scale", ("1",), "float32", "multiplies", True),
    ),
    outputs=(Buffer("y", ("m", "n")),),
    dtypes=("bfloat16",),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2, operand="float16", c_operand=16),
    cost=cost,
    laws={"normal": normal, "late_block": late_block, "mixed_scale": mixed_scale, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(gemm_axes(1, 1, 1), "bfloat16"),
        Workload(gemm_axes(0, 16, 32), "bfloat16"),
        Workload(gemm_axes(17, 33, 127), "bfloat16"),
        Workload(gemm_axes(3, 70, 272), "bfloat16", "late_block"),
        Workload(gemm_axes(1, 48, 1024), "bfloat16"),
        Workload(gemm_axes(133, 144, 160), "bfloat16"),
        Workload(gemm_axes(17, 31, 129), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(5, 65, 257), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(17, 33, 127), "bfloat16", "integers"),
        Workload(gemm_axes(3, 129, 272), "bfloat16", "integers"),
        Workload(gemm_axes(1, 9216, 2048), "bfloat16", use="target", note="Qwen3.6 fused qkv, decode"),
        Workload(gemm_axes(64, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, 64 sequences"),
        Workload(gemm_axes(4096, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, prefill"),
        Workload(gemm_axes(4096, 2048, 4096), "bfloat16", use="target", note="Qwen3.6 output projection, prefill"),
    ),
    source="OCP 8-bit floating point; accumulator width after DeepSeek-V3 technical report, 2024, section 3.3",
    baselines=("scaled_mm_fast", "scaled_mm"),
)
