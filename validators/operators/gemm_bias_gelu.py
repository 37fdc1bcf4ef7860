"""Linear layer with bias and GELU: the first half of a transformer MLP."""

import math
from typing import cast

import torch

from kb.validators.operators.draws import mixed, structured
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Workload,
    itemsize,
)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> tuple[torch.Tensor, ...]:
    """Return gelu(x @ weight.T + bias) in float64.

    x [num_tokens, in_features], weight [out_features, in_features], bias [out_features]; tanh=1 asks for the tanh form.
    """
    z = x.to(torch.float64) @ weight.to(torch.float64).T + bias.to(torch.float64)
    if tanh:
        return (0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),)
    return (0.5 * z * torch.special.erfc(-z / math.sqrt(2)),)


def condition(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> tuple[torch.Tensor, ...]:
    """Return S = 1.13 sqrt(sum x_i^2 w_i^2 + b^2) + |z| / 25.

    1.13 is the steepest slope of GELU. |z| / 25 times c_acc = 200 is 8 u |z|, the error of GELU itself as in ``gelu``.
    """
    wide, w, b = x.to(torch.float64), weight.to(torch.float64), bias.to(torch.float64)
    products = (wide.square() @ w.square().T + b.square()).sqrt()
    return (1.13 * products + (wide @ w.T + b).abs() / 25,)


def cost(axes: Axes, dtype: str) -> Cost:
    """Return 2 M N K + 9 M N operations; x, weight and bias read once, y written once."""
    m, n, k = axes["num_tokens"], axes["out_features"], axes["in_features"]
    return Cost(flops=2 * m * n * k + 9 * m * n, essential_bytes=(m * k + n * k + n + m * n) * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Weights of scale K^-1/2, so that z has deviation about 1 to 4 by rows; biases around 0.5; the erf form."""
    m, n, k = axes["num_tokens"], axes["out_features"], axes["in_features"]
    scale = torch.exp2(torch.randint(0, 3, (m, 1), generator=generator).to(torch.float32))
    x = torch.randn(m, k, generator=generator) * scale
    weight = torch.randn(n, k, generator=generator) / math.sqrt(k)
    bias = 0.5 + 0.5 * torch.randn(n, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), 0


def tanh_form(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the tanh form is asked for."""
    return (*normal(axes, dtype, generator)[:3], 1)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with x and weight slices of wider rows (strides of in_features + 3 and + 8)."""
    x, weight, bias, tanh = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor, int], normal(axes, dtype, generator))
    k = axes["in_features"]
    pad_x, pad_w = (torch.full((t.shape[0], extra), 9.0, dtype=t.dtype) for t, extra in ((x, 3), (weight, 8)))
    return torch.cat([x, pad_x], dim=1)[:, :k], torch.cat([weight, pad_w], dim=1)[:, :k], bias, tanh


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of x of scale 2^-4 … 2^4 behind a nominal one; the last eighth of in_features is 4 times the rest."""
    k, n = axes["in_features"], axes["out_features"]
    x = mixed((axes["num_tokens"], k), generator, spread=4, tail=2)
    weight = torch.randn(n, k, generator=generator) / math.sqrt(k)
    bias = 0.5 * torch.randn(n, generator=generator)
    return x.to(DTYPES[dtype]), weight.to(DTYPES[dtype]), bias.to(DTYPES[dtype]), 0


def saturated(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Sums of deviation 60: GELU is x or nothing, and exp of its square or its cube overflows; both forms by turns."""
    x, weight, bias, _ = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor, int], normal(axes, dtype, generator))
    return 30 * x, weight, bias, int(torch.randint(0, 2, (1,), generator=generator))


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty rows of x, so that some sums are the bias or its neighbour."""
    _, weight, bias, _ = cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor, int], normal(axes, dtype, generator))
    x = structured((axes["num_tokens"], axes["in_features"]), generator)
    return x.to(DTYPES[dtype]), weight, bias, 0


_AXES = ("num_tokens", "in_features", "out_features")


def _workload(
    sizes: tuple[int, ...], dtype: str, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="gemm_bias_gelu",
    summary="y = gelu(x @ weight^T + bias); erf form, or tanh form if tanh=1",
    signature="gemm_bias_gelu(x, weight, bias, tanh=0)",
    axes=_AXES,
    inputs=(
        Buffer("x", ("num_tokens", "in_features")),
        Buffer("weight", ("out_features", "in_features"), doc="as torch.nn.Linear keeps it", static=True),
        Buffer("bias", ("out_features",), static=True),
        Scalar("tanh", 0, "0: erf form; 1: tanh form"),
    ),
    outputs=(Buffer("y", ("num_tokens", "out_features")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # 200 u S: float32 accumulation reaches 15 to 31, TF32 operands 42,000. z rounded to bfloat16 before GELU errs by
    # 2^-8 |z| where y is small and fails there. c_out = 2 admits a store that truncates, as Triton's interpreter does.
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "tanh_form": tanh_form,
        "strided": strided,
        "mixed_scale": mixed_scale,
        "saturated": saturated,
        "structure": structure,
    },
    workloads=(
        _workload((1, 1, 1), "float32"),
        _workload((0, 64, 32), "bfloat16"),
        _workload((7, 37, 29), "float32"),
        _workload((130, 64, 48), "bfloat16"),
        _workload((5, 200, 131), "float16", "tanh_form"),
        _workload((17, 72, 136), "bfloat16", "tanh_form"),
        _workload((33, 129, 70), "float32", "strided"),
        _workload((20, 160, 64), "bfloat16", "strided"),
        _workload((17, 129, 31), "float32", "mixed_scale"),
        _workload((5, 65, 33), "bfloat16", "mixed_scale"),
        _workload((9, 33, 17), "float32", "saturated"),
        _workload((3, 64, 130), "float16", "saturated"),
        _workload((15, 48, 33), "bfloat16", "structure"),
        _workload((5184, 1024, 4736), "bfloat16", "normal", "target", "SAM 3.1 image MLP"),
        _workload((2304, 1152, 4304), "bfloat16", "tanh_form", "target", "Qwen3.6 vision MLP"),
    ),
    source="Hendrycks and Gimpel, Gaussian error linear units, 2016; SAM 3 image encoder MLP",
    baselines=("mm_gelu_compiled", "mm_gelu"),
    rivals=("torch._addmm_activation, the GELU epilogue of cuBLASLt, whose error in 16 bits is beyond the bound",),
)
