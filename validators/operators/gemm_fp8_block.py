"""FP8 GEMM with block scales: 1 x 128 on activations, 128 x 128 on weights, promotion to float32 every 128 of k.

Inside one block of 128 the matrix unit may keep its own partial sum. On Hopper each step of 32 elements aligns the 32
products and the sum so far to the largest of them and truncates all below 13 fraction bits. Four such steps on e4m3
draws err by 0.25 u(float16) S on average (simulated, rms), and by 3.5 u(float16) S at the worst of 4e5 draws, where the
partial sum passes 4 S on its way; 8 leaves a factor of two for the 5e7 elements of a prefill. A bfloat16 partial sum
has u = 8 u(float16) at every step and passes that at the first cancellation.
"""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import fp8_dequantize_tiles, fp8_quantize_tiles
from kb.validators.operators.gemm import gemm_axes
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload

A_TILE = (1, 128)
B_TILE = (128, 128)


def reference(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return dequantised a @ dequantised b.T in float64; a [m, k], b [n, k]."""
    return (fp8_dequantize_tiles(a, a_scale, A_TILE) @ fp8_dequantize_tiles(b, b_scale, B_TILE).T,)


def condition(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum a^2 b^2) over the dequantised operands."""
    wide_a, wide_b = fp8_dequantize_tiles(a, a_scale, A_TILE), fp8_dequantize_tiles(b, b_scale, B_TILE)
    return ((wide_a.square() @ wide_b.square().T).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 M N K; a byte an element of a and b, two of y, 4 bytes a scale: M ceil(K/128) + ceil(N/128) ceil(K/128)."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    blocks = -(-k // 128)
    scales = 4 * blocks * (m + -(-n // 128))
    return Cost(flops=2 * m * n * k, essential_bytes=m * k + n * k + 2 * m * n + scales)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Blocks along k differ by up to 2^6 in scale on both sides, so that a misplaced scale shows."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    gain = torch.exp2(torch.randint(-3, 4, (-(-k // 128),), generator=generator).to(torch.float32))
    gain = gain.repeat_interleave(128)[:k]
    a, a_scale = fp8_quantize_tiles(rows(m, k, "float32", generator) * gain, A_TILE)
    b, b_scale = fp8_quantize_tiles(torch.randn(n, k, generator=generator) * gain.flip(0) * k**-0.5, B_TILE)
    return a, b, a_scale, b_scale


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Nearly all energy in the last eighth of k, and blocks of zeros, whose scale is 1."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    wide = rows(m, k, "float32", generator)
    early = torch.arange(k) < k - max(1, k // 8)
    wide = torch.where(early, wide / 64, wide)
    wide[::3, :128] = 0
    a, a_scale = fp8_quantize_tiles(wide, A_TILE)
    b, b_scale = fp8_quantize_tiles(torch.randn(n, k, generator=generator), B_TILE)
    return a, b, a_scale, b_scale


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of both operands of scale 2^-4 … 2^4 behind nominal ones; a weight block then holds subnormals."""
    a, a_scale = fp8_quantize_tiles(mixed((axes["m"], axes["k"]), generator, spread=4), A_TILE)
    b, b_scale = fp8_quantize_tiles(mixed((axes["n"], axes["k"]), generator, spread=4), B_TILE)
    return a, b, a_scale, b_scale


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers and block scales 1 and 2: every order of summation gives the same sum."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    a, b = (signs((one, k), generator).to(torch.float8_e4m3fn) for one in (m, n))
    blocks = -(-k // 128)
    a_scale = 1.0 + torch.randint(0, 2, (m, blocks), generator=generator)
    b_scale = 1.0 + torch.randint(0, 2, (-(-n // 128), blocks), generator=generator)
    return a, b, a_scale, b_scale


SPEC = Operator(
    name="gemm_fp8_block",
    summary="y = (a * a_scale[m, k/128]) @ (b * b_scale[n/128, k/128]).T, e4m3 operands",
    signature="gemm_fp8_block(a, b, a_scale, b_scale)",
    axes=("m", "n", "k"),
    inputs=(
        Buffer("a", ("m", "k"), "float8_e4m3fn"),
        Buffer("b", ("n", "k"), "float8_e4m3fn", "k contiguous", True),
        Buffer("a_scale", ("m", "ceil(k/128)"), "float32", "multiplies; row-major"),
        Buffer("b_scale", ("ceil(n/128)", "ceil(k/128)"), "float32", "multiplies; row-major", True),
    ),
    outputs=(Buffer("y", ("m", "n")),),
    dtypes=("bfloat16",),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2, operand="float16", c_operand=8),
    cost=cost,
    laws={"normal": normal, "late_block": late_block, "mixed_scale": mixed_scale, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(gemm_axes(1, 1, 1), "bfloat16"),
        Workload(gemm_axes(0, 16, 128), "bfloat16"),
        Workload(gemm_axes(17, 33, 130), "bfloat16", note="both last blocks are cut"),
        Workload(gemm_axes(3, 200, 384), "bfloat16"),
        Workload(gemm_axes(1, 48, 1024), "bfloat16"),
        Workload(gemm_axes(133, 144, 272), "bfloat16"),
        Workload(gemm_axes(7, 130, 272), "bfloat16", "late_block"),
        Workload(gemm_axes(17, 31, 129), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(15, 33, 127), "bfloat16", "integers"),
        Workload(gemm_axes(3, 129, 260), "bfloat16", "integers"),
        Workload(gemm_axes(1, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, decode"),
        Workload(gemm_axes(64, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, 64 sequences"),
        Workload(gemm_axes(4096, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, prefill"),
    ),
    source="DeepSeek-V3 technical report, 2024, section 3.3",
    baselines=("blockwise_mm", "dequantised_matmul_compiled", "dequantised_matmul"),
    rivals=("deep_gemm.fp8_gemm_nt", "torch._scaled_mm with block scales"),
)
