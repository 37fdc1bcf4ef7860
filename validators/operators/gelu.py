"""GELU, exact (erf) or in its tanh form, element by element."""

import math

import torch

from kb.validators.operators.draws import extremes, mixed, poisoned
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


def reference(x: torch.Tensor, tanh: int = 0) -> tuple[torch.Tensor, ...]:
    """Return x Phi(x) in float64 (tanh=0), or its tanh form (tanh=1); x [num_tokens, hidden_size]."""
    wide = x.to(torch.float64)
    if tanh:
        return (0.5 * wide * (1 + torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))),)
    return (0.5 * wide * torch.special.erfc(-wide / math.sqrt(2)),)


def condition(x: torch.Tensor, tanh: int = 0) -> tuple[torch.Tensor, ...]:
    """Return S = |x|: every usual formula adds 1 to an erf or tanh near -1, so the tail is exact to u |x| only."""
    return (x.to(torch.float64).abs(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Eight operations an element (scale, erf as 4, add, two products); x read once, y written once."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=8 * elements, essential_bytes=2 * elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-3 … 2^3; the erf form."""
    rows = axes["num_tokens"]
    scale = torch.exp2(torch.randint(-3, 4, (rows, 1), generator=generator).to(torch.float32))
    return (torch.randn(rows, axes["hidden_size"], generator=generator) * scale).to(DTYPES[dtype]), 0


def tanh_form(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the tanh form is asked for; the two differ by up to 4.8e-4."""
    x, _ = normal(axes, dtype, generator)
    return x, 1


def tails(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Uniform in [-60, 60], both forms by turns of the generator: exp of x^2 or x^3 overflows, y must not."""
    x = (torch.rand(axes["num_tokens"], axes["hidden_size"], generator=generator) - 0.5) * 120
    return x.to(DTYPES[dtype]), int(torch.randint(0, 2, (1,), generator=generator))


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one, the last columns 16 times the rest."""
    x = mixed((axes["num_tokens"], axes["hidden_size"]), generator)
    return x.to(DTYPES[dtype]), 0


def corners(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """The corners of the format, as ``draws.extremes`` has them; both forms."""
    x = extremes((axes["num_tokens"], axes["hidden_size"]), dtype, generator)
    return x, int(torch.randint(0, 2, (1,), generator=generator))


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, with a few NaN: they stay NaN, and what lies beside them is not touched."""
    x = torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    return poisoned(x, generator).to(DTYPES[dtype]), 0


SPEC = Operator(
    name="gelu",
    summary="y = x * Phi(x), Phi the normal CDF; tanh=1: 0.5 x (1 + tanh(sqrt(2/pi)(x + 0.044715 x^3)))",
    signature="gelu(x, tanh=0)",
    axes=("num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens", "hidden_size")), Scalar("tanh", 0, "0: erf form; 1: tanh form")),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    # 1.5e-7 is the absolute error of the shortest erf series in use, 1.3 u |x| here; hardware exp adds as much.
    # 8 u |x| = 5e-7 |x| still tells the tanh from the erf form (4.8e-4). c_out = 2 admits a truncating store.
    error=ErrorModel(accumulate="float32", c_acc=8, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "tanh_form": tanh_form,
        "tails": tails,
        "mixed_scale": mixed_scale,
        "corners": corners,
        "poison": poison,
    },
    workloads=(
        Workload({"num_tokens": 1, "hidden_size": 1}, "float32"),
        Workload({"num_tokens": 0, "hidden_size": 64}, "bfloat16"),
        Workload({"num_tokens": 3, "hidden_size": 1031}, "float32"),
        Workload({"num_tokens": 3, "hidden_size": 509}, "float32", law="tanh_form"),
        Workload({"num_tokens": 5, "hidden_size": 257}, "float32", law="tails"),
        Workload({"num_tokens": 2, "hidden_size": 1152}, "bfloat16", law="tanh_form"),
        Workload({"num_tokens": 2, "hidden_size": 130}, "float16", law="tails"),
        Workload({"num_tokens": 5, "hidden_size": 127}, "bfloat16", law="mixed_scale"),
        Workload({"num_tokens": 17, "hidden_size": 33}, "float32", law="mixed_scale"),
        Workload({"num_tokens": 3, "hidden_size": 129}, "float16", law="corners"),
        Workload({"num_tokens": 2, "hidden_size": 257}, "float32", law="corners"),
        Workload({"num_tokens": 2, "hidden_size": 127}, "bfloat16", law="corners"),
        Workload({"num_tokens": 4, "hidden_size": 31}, "float32", law="poison"),
        Workload({"num_tokens": 5184, "hidden_size": 4736}, "bfloat16", use="target", note="SAM 3.1 image MLP"),
        Workload({"num_tokens": 2304, "hidden_size": 4304}, "bfloat16", "tanh_form", "target", "Qwen3.6 vision MLP"),
    ),
    source="Hendrycks and Gimpel, Gaussian error linear units, 2016; torch.nn.functional.gelu",
    baselines=("gelu",),
)
