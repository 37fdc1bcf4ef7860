"""GEMM with MXFP4 weights and bfloat16 activations (W4A16).

A decoded weight, e2m1 times a power of two, is exact in bfloat16. In float16 it need not be (the exponent of e8m0
reaches further), so float16 activations are outside the contract.
"""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import mxfp4_dequantize, pack_nibbles
from kb.validators.operators.gemm import gemm_axes
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload


def random_mxfp4(experts: int, n: int, k: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw weights directly in the format: all sixteen codes, scales of 2^-12 … 2^-2 and some of 2^-40.

    Returns:
        packed uint8 [experts, n, k / 2] and e8m0 scale uint8 [experts, n, k / 32].
    """
    packed = torch.randint(0, 256, (experts, n, k // 2), generator=generator, dtype=torch.uint8)
    scale = torch.randint(115, 126, (experts, n, k // 32), generator=generator, dtype=torch.uint8)
    rare = torch.randint(0, 16, scale.shape, generator=generator, dtype=torch.uint8) == 0
    return packed, torch.where(rare, torch.full_like(scale, 87), scale)


def reference(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x @ dequantise(weight).T in float64; x [m, k], result [m, n]."""
    return (x.to(torch.float64) @ mxfp4_dequantize(weight_packed, weight_scale).T,)


def condition(x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum x^2 w^2) over the dequantised weights."""
    return ((x.to(torch.float64).square() @ mxfp4_dequantize(weight_packed, weight_scale).square().T).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 M N K; two bytes an element of x and y, 4.25 bits a weight (4 and 8 for every 32)."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    return Cost(flops=2 * m * n * k, essential_bytes=2 * m * (n + k) + n * k // 2 + n * k // 32)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of mixed scale against weights that use every code."""
    packed, scale = random_mxfp4(1, axes["n"], axes["k"], generator)
    return rows(axes["m"], axes["k"], dtype, generator), packed[0], scale[0]


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-8 … 2^8 behind a nominal one; the last eighth of k is 16 times the rest."""
    packed, scale = random_mxfp4(1, axes["n"], axes["k"], generator)
    return mixed((axes["m"], axes["k"]), generator).to(DTYPES[dtype]), packed[0], scale[0]


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Weights that vanish (scales of 2^-40) but for the last block of k; one row of zeros."""
    packed, scale = random_mxfp4(1, axes["n"], axes["k"], generator)
    scale[..., :-1] = 87
    packed[0, axes["n"] // 2] = 0
    return rows(axes["m"], axes["k"], dtype, generator), packed[0], scale[0]


def whole_mxfp4(experts: int, n: int, k: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw weights -1, 0 and 1 with scales of 1/2 and 1: codes of 2 and 1, and of both zeros."""
    codes = torch.tensor([0, 2, 10, 8], dtype=torch.uint8)[torch.randint(0, 4, (experts, n, k), generator=generator)]
    scale = torch.randint(126, 128, (experts, n, k // 32), generator=generator, dtype=torch.uint8)
    # The code of 2 is two steps above the code of 1.
    codes = codes + 2 * ((scale == 126).repeat_interleave(32, -1) & (codes % 8 > 0)).to(torch.uint8)
    return pack_nibbles(codes), scale


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers on both sides: every order of summation gives the same sum."""
    packed, scale = whole_mxfp4(1, axes["n"], axes["k"], generator)
    return signs((axes["m"], axes["k"]), generator).to(DTYPES[dtype]), packed[0], scale[0]


SPEC = Operator(
    name="gemm_mxfp4",
    summary="y = x @ dequantise(weight).T with MXFP4 weights and bfloat16 activations",
    signature="gemm_mxfp4(x, weight_packed, weight_scale)",
    axes=("m", "n", "k"),
    inputs=(
        Buffer("x", ("m", "k")),
        Buffer("weight_packed", ("n", "k/2"), "uint8", "two e2m1 a byte along k, even k in the low nibble", True),
        Buffer("weight_scale", ("n", "k/32"), "uint8", "e8m0: 2^(byte - 127); linear layout", True),
    ),
    outputs=(Buffer("y", ("m", "n")),),
    dtypes=("bfloat16",),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={"normal": normal, "mixed_scale": mixed_scale, "late_block": late_block, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(gemm_axes(1, 1, 32), "bfloat16"),
        Workload(gemm_axes(0, 32, 64), "bfloat16"),
        Workload(gemm_axes(3, 37, 96), "bfloat16"),
        Workload(gemm_axes(1, 130, 544), "bfloat16", note="k is 17 blocks of 32"),
        Workload(gemm_axes(17, 64, 256), "bfloat16"),
        Workload(gemm_axes(70, 45, 160), "bfloat16"),
        Workload(gemm_axes(15, 31, 96), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(5, 33, 160), "bfloat16", "late_block"),
        Workload(gemm_axes(17, 33, 128), "bfloat16", "integers"),
        Workload(gemm_axes(1, 129, 288), "bfloat16", "integers"),
        Workload(gemm_axes(1, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 shared expert shape, decode"),
        Workload(gemm_axes(8, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection shape"),
        Workload(gemm_axes(4096, 12288, 2048), "bfloat16", use="target", note="the same, prefill"),
    ),
    source="OCP Microscaling Formats (MX) specification 1.0",
    baselines=("dequantised_matmul_compiled", "dequantised_matmul"),
    rivals=("a weight dequantised once, ahead of all calls, and torch.matmul",),
)
