"""GEMM: a [m, k] times b [k, n], float32 accumulation."""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a @ b in float64; a [m, k], b [k, n]."""
    return (a.to(torch.float64) @ b.to(torch.float64),)


def condition(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum a^2 b^2), float64 [m, n]."""
    return ((a.to(torch.float64).square() @ b.to(torch.float64).square()).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 M N K; a and b read once, y written once."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    return Cost(flops=2 * m * n * k, essential_bytes=(m * k + k * n + m * n) * itemsize(dtype))


def _operands(axes: Axes, dtype: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    a = rows(axes["m"], axes["k"], dtype, generator)
    gain = torch.exp2(torch.randint(-2, 3, (1, axes["n"]), generator=generator).to(torch.float32))
    b = torch.randn(axes["k"], axes["n"], generator=generator) * (gain * axes["k"] ** -0.5)
    return a, b.to(DTYPES[dtype])


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of a and columns of b of mixed scale."""
    return _operands(axes, dtype, generator)


def late_block(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Nearly all energy in the last eighth of k: a dropped tail or a subsampled reduction shows."""
    a, b = _operands(axes, dtype, generator)
    early = torch.arange(axes["k"]) < axes["k"] - max(1, axes["k"] // 8)
    return torch.where(early, a / 64, a), b


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Both operands are column slices of wider tensors: the row stride is not the row length."""
    a, b = _operands(axes, dtype, generator)
    wide_a, wide_b = torch.nn.functional.pad(a, (3, 8)), torch.nn.functional.pad(b, (8, 1))
    return wide_a[:, 3 : 3 + axes["k"]], wide_b[:, 8 : 8 + axes["n"]]


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of both operands of scale 2^-4 … 2^4 behind nominal ones; the last eighth of a row is 4 times the rest."""
    a = mixed((axes["m"], axes["k"]), generator, spread=4, tail=2)
    b = mixed((axes["k"], axes["n"]), generator, spread=4, tail=2) * axes["k"] ** -0.5
    return a.to(DTYPES[dtype]), b.to(DTYPES[dtype])


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Terms of one sign in the first half of k that the second half takes back: the sum on the way leaves float16."""
    m, n, half = axes["m"], axes["n"], axes["k"] // 2
    a, b = (64 * (0.5 + torch.rand(shape, generator=generator)) for shape in ((m, axes["k"]), (axes["k"], n)))
    a[:, half : 2 * half] = a[:, :half] + torch.randn(m, half, generator=generator)
    b[half : 2 * half] = -b[:half]
    b[2 * half :] = 0.5
    return a.to(DTYPES[dtype]), b.to(DTYPES[dtype])


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    a, b = (signs(shape, generator) for shape in ((axes["m"], axes["k"]), (axes["k"], axes["n"])))
    return a.to(DTYPES[dtype]), b.to(DTYPES[dtype])


def gemm_axes(m: int, n: int, k: int) -> dict[str, int]:
    """Return the axes of a GEMM."""
    return {"m": m, "n": n, "k": k}


SPEC = Operator(
    name="gemm",
    summary="y = a @ b",
    signature="gemm(a, b)",
    axes=("m", "n", "k"),
    inputs=(
        Buffer("a", ("m", "k"), doc="last axis contiguous, any row stride"),
        Buffer("b", ("k", "n"), doc="last axis contiguous, any row stride", static=True),
    ),
    outputs=(Buffer("y", ("m", "n")),),
    dtypes=("float32", "bfloat16", "float16"),
    reference=reference,
    condition=condition,
    # c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "late_block": late_block,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "cancelling": cancelling,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        Workload(gemm_axes(1, 1, 1), "float32"),
        Workload(gemm_axes(0, 5, 7), "bfloat16"),
        Workload(gemm_axes(17, 33, 127), "float32"),
        Workload(gemm_axes(3, 130, 257), "bfloat16", "late_block"),
        Workload(gemm_axes(1, 67, 1031), "float16", "late_block"),
        Workload(gemm_axes(70, 41, 64), "float32", "strided"),
        Workload(gemm_axes(131, 150, 96), "bfloat16"),
        Workload(gemm_axes(5, 40, 80), "bfloat16", "strided"),
        Workload(gemm_axes(17, 31, 129), "float32", "mixed_scale"),
        Workload(gemm_axes(5, 65, 96), "bfloat16", "mixed_scale"),
        Workload(gemm_axes(9, 17, 130), "float16", "cancelling"),
        Workload(gemm_axes(15, 33, 64), "float32", "cancelling"),
        Workload(gemm_axes(17, 33, 127), "float32", "integers"),
        Workload(gemm_axes(31, 15, 257), "bfloat16", "integers"),
        Workload(gemm_axes(3, 129, 80), "float16", "integers"),
        Workload(gemm_axes(1, 256, 2048), "bfloat16", use="target", note="Qwen3.6 router, decode"),
        Workload(gemm_axes(8, 2048, 4096), "bfloat16", use="target", note="Qwen3.6 output projection, decode"),
        Workload(gemm_axes(16, 9216, 2048), "bfloat16", use="target", note="Qwen3.6 fused qkv, decode"),
        Workload(gemm_axes(4096, 8192, 2048), "bfloat16", use="target", note="Qwen3.6 query+gate, prefill"),
        Workload(gemm_axes(5184, 3072, 1024), "bfloat16", use="target", note="SAM 3.1 fused qkv"),
        Workload(gemm_axes(5184, 4736, 1024), "bfloat16", use="target", note="SAM 3.1 MLP up"),
        Workload(gemm_axes(200, 82944, 256), "bfloat16", use="target", note="SAM 3.1 masks"),
    ),
    source="BLAS level 3; error bound after Higham and Mary, 2019",
    baselines=("matmul", "matmul_compiled"),
)
