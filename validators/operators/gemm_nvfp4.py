"""GEMM with NVFP4 weights and 16-bit activations (W4A16).

The contract multiplies the exact weight: e2m1 * block scale has at most 6 significant bits, so it is exact in bfloat16
and float16, and the global scale belongs into the float32 epilogue. Only accumulation and output rounding are free.
"""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.formats import nvfp4_dequantize, pack_nibbles
from kb.validators.operators.gemm import gemm_axes
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize

Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def random_nvfp4(experts: int, n: int, k: int, generator: torch.Generator) -> Packed:
    """Draw weights directly in the format: all sixteen codes, block scales of 2^-4 … 2^4 and some extreme ones.

    Args:
        experts: Leading size of each result.
        n: Rows of a weight.
        k: Columns, a multiple of 16.
        generator: Source of randomness.

    Returns:
        packed uint8 [experts, n, k / 2]; scale float8_e4m3fn [experts, n, k / 16], one in sixteen drawn from all
        non-negative finite bytes, with zero and the subnormals; global scale float32 [experts], no powers of two.
    """
    packed = torch.randint(0, 256, (experts, n, k // 2), generator=generator, dtype=torch.uint8)
    shape = (experts, n, k // 16)
    usual = torch.randint(0x18, 0x59, shape, generator=generator, dtype=torch.uint8)
    any_byte = torch.randint(0, 0x7F, shape, generator=generator, dtype=torch.uint8)
    rare = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8) == 0
    scale = torch.where(rare, any_byte, usual).view(torch.float8_e4m3fn)
    return packed, scale, (0.5 + torch.rand(experts, generator=generator)) * (0.03 * k**-0.5)


def reference(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return x @ dequantise(weight).T in float64; x [m, k], result [m, n]."""
    return (x.to(torch.float64) @ nvfp4_dequantize(weight_packed, weight_scale, weight_global_scale).T,)


def condition(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum x^2 w^2) over the dequantised weights."""
    weight = nvfp4_dequantize(weight_packed, weight_scale, weight_global_scale)
    return ((x.to(torch.float64).square() @ weight.square().T).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 M N K; x and y in the data dtype, 9 bits a weight (4 and an e4m3 per 16 are 4.5), 4 bytes of global scale."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    weights = n * k // 2 + n * k // 16 + 4
    return Cost(flops=2 * m * n * k, essential_bytes=m * (n + k) * itemsize(dtype) + weights)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of mixed scale against weights that use every code and every kind of block scale."""
    packed, scale, outer = random_nvfp4(1, axes["n"], axes["k"], generator)
    return rows(axes["m"], axes["k"], dtype, generator), packed[0], scale[0], outer


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-6 … 2^6 behind a nominal one; the last eighth of k is 16 times the rest."""
    packed, scale, outer = random_nvfp4(1, axes["n"], axes["k"], generator)
    return mixed((axes["m"], axes["k"]), generator, spread=6).to(DTYPES[dtype]), packed[0], scale[0], outer


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Weights that vanish (block scales of zero or 2^-9) but for the last block of k."""
    packed, scale, outer = random_nvfp4(1, axes["n"], axes["k"], generator)
    raw = scale[0].view(torch.uint8)
    raw[:, :-1] = torch.randint(0, 2, raw[:, :-1].shape, generator=generator, dtype=torch.uint8)
    return rows(axes["m"], axes["k"], dtype, generator), packed[0], raw.view(torch.float8_e4m3fn), outer


def whole_nvfp4(experts: int, n: int, k: int, generator: torch.Generator) -> Packed:
    """Draw weights -1, 0 and 1 with block scales of 1/2, 1 and 2 and powers of two as global scales."""
    want = torch.randint(-1, 2, (experts, n, k), generator=generator)
    exponent = torch.randint(-1, 2, (experts, n, k // 16), generator=generator)
    # e2m1 codes of 2, 1 and 1/2 are 4, 2 and 1.
    code = torch.tensor([4, 2, 1])[exponent + 1].repeat_interleave(16, -1)
    code = torch.where(want == 0, 8 * (code == 4), code + 8 * (want < 0)).to(torch.uint8)
    scale = torch.exp2(exponent.to(torch.float32)).to(torch.float8_e4m3fn)
    outer = torch.exp2(torch.randint(-3, 1, (experts,), generator=generator).to(torch.float32))
    return pack_nibbles(code), scale, outer


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers on both sides: every order of summation gives the same sum."""
    packed, scale, outer = whole_nvfp4(1, axes["n"], axes["k"], generator)
    return signs((axes["m"], axes["k"]), generator).to(DTYPES[dtype]), packed[0], scale[0], outer


SPEC = Operator(
    name="gemm_nvfp4",
    summary="y = x @ dequantise(weight).T with NVFP4 weights and 16-bit activations",
    signature="gemm_nvfp4(x, weight_packed, weight_scale, weight_global_scale)",
    axes=("m", "n", "k"),
    inputs=(
        Buffer("x", ("m", "k")),
        Buffer("weight_packed", ("n", "k/2"), "uint8", "two e2m1 a byte along k, even k in the low nibble", True),
        Buffer("weight_scale", ("n", "k/16"), "float8_e4m3fn", "non-negative, linear layout (not swizzled)", True),
        Buffer("weight_global_scale", ("1",), "float32", "multiplies: value = e2m1 * scale * global", True),
    ),
    outputs=(Buffer("y", ("m", "n")),),
    dtypes=("bfloat16", "float16"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={"normal": normal, "mixed_scale": mixed_scale, "late_block": late_block, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(gemm_axes(1, 1, 16), "bfloat16"),
        Workload(gemm_axes(0, 32, 64), "bfloat16"),
        Workload(gemm_axes(3, 37, 48), "float16"),
        Workload(gemm_axes(1, 130, 528), "bfloat16", note="k is 33 blocks of 16"),
        Workload(gemm_axes(17, 64, 256), "bfloat16"),
        Workload(gemm_axes(70, 45, 144), "float16"),
        Workload(gemm_axes(15, 31, 96), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(5, 33, 144), "float16", "mixed_scale"),
        Workload(gemm_axes(5, 33, 176), "bfloat16", "late_block"),
        Workload(gemm_axes(17, 33, 128), "bfloat16", "integers"),
        Workload(gemm_axes(1, 129, 272), "float16", "integers"),
        Workload(gemm_axes(1, 1024, 2048), "bfloat16", use="target", note="Qwen3.6 shared expert gate+up, decode"),
        Workload(gemm_axes(16, 248320, 2048), "bfloat16", use="target", note="Qwen3.6 output head, 16 sequences"),
        Workload(gemm_axes(8, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection"),
        Workload(gemm_axes(4096, 12288, 2048), "bfloat16", use="target", note="Qwen3.6 GDN in-projection, prefill"),
    ),
    source="NVIDIA, NVFP4 as in the CUDA 12.8 PTX ISA block scaling and ModelOpt checkpoints",
    baselines=("dequantised_matmul_compiled", "dequantised_matmul"),
    rivals=("a weight dequantised once, ahead of all calls, and torch.matmul",),
)
