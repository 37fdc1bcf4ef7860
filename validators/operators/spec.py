"""The types an operator spec is made of.

An operator says *what* is computed, never how. Its reference is the ground truth for values and runs in float64
on the candidate's own (already quantised) inputs. Its error bound is derived from the rounding of the contract,

    |y - y64| <= c_acc * u(accumulate) * S + c_operand * u(operand) * S + c_out * (u(output) * |y64| + half the smallest
    subnormal of the output) + tiny

where ``u`` is the unit roundoff of a format and ``S`` the condition scale of the operator: for a dot product
sqrt(sum a_i^2 b_i^2), so that the bound is flat in the length of the reduction (Higham and Mary, "A new approach
to probabilistic rounding error analysis", 2019).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

Arguments = tuple[object, ...]
"""Positional arguments of ``run``: tensors, numbers, or tuples of tensors, in the order of the signature."""

Axes = Mapping[str, int]
"""Axis name to size; every axis of the operator is present."""

DTYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
"""The dtypes a buffer may have; nvfp4 and mxfp4 travel as packed uint8 with their scales beside them."""

UNIT_ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
"""Unit roundoff u = half the distance from 1 to the next number; the largest relative rounding error."""

UNDERFLOW: Mapping[str, float] = {
    "float64": 2.0**-1075,
    "float32": 2.0**-150,
    "float16": 2.0**-25,
    "bfloat16": 2.0**-134,
    "float8_e4m3fn": 2.0**-10,
    "float8_e5m2": 2.0**-17,
}
"""Half of the smallest subnormal: the largest absolute rounding error near zero."""


@dataclass(frozen=True)
class Buffer:
    """One tensor argument or result."""

    name: str
    axes: tuple[str, ...]
    """Axis names; a product such as ``num_tokens*top_k`` is allowed. Row-major, last axis contiguous."""
    dtype: str = "data"
    """``data`` means the workload's dtype; anything else is a fixed dtype name of ``DTYPES``."""
    doc: str = ""
    static: bool = False
    """True for weights: the contents may stay equal between calls, so that packing them once is legal."""


@dataclass(frozen=True)
class Scalar:
    """One plain number of the signature, with its default (None: it has none)."""

    name: str
    default: float | int | None = None
    doc: str = ""


@dataclass(frozen=True)
class Cost:
    """Work that no implementation can avoid."""

    flops: int
    """Multiply and add counted as two; dense-equivalent unless the contract allows skipping."""
    essential_bytes: int
    """Each input read once plus each output written once, in bytes."""


@dataclass(frozen=True)
class ErrorModel:
    """Constants of the bound in the module docstring; there is no default tolerance anywhere."""

    accumulate: str
    """Format in which sums are kept, a key of ``UNIT_ROUNDOFF``."""
    c_acc: float
    """Factor on u(accumulate) * S."""
    c_out: float
    """Factor on u(output) * |y64|; 1 is a single correct rounding."""
    operand: str | None = None
    """Format to which the contract lets an intermediate be rounded (softmax weights before the second product)."""
    c_operand: float = 0.0
    """Factor on u(operand) * S."""
    tiny: float = 1e-35
    """Underflow term; 1e-37 was measured to reject an honest float32 silu near x = -88."""

    def for_exact(self) -> "ErrorModel":
        """Return the bound of an exact law: one correct rounding of the output and nothing else."""
        return replace(self, c_acc=0.0, c_operand=0.0, c_out=1.0, tiny=0.0)


@dataclass(frozen=True)
class Workload:
    """Axes, dtype and input law of one case."""

    axes: Mapping[str, int]
    dtype: str
    law: str = "normal"
    use: str = "awkward"
    """``awkward``: small and ugly, for values on a CPU. ``target``: a real shape of a target, for a GPU."""
    note: str = ""


Reference = Callable[..., tuple[torch.Tensor, ...]]
"""Takes ``Arguments`` and returns the float64 (or exact integer) results."""

Law = Callable[[Axes, str, torch.Generator], Arguments]
"""Draws the arguments of one call on the CPU: (axes, dtype, generator) -> arguments."""


@dataclass(frozen=True)
class Wire:
    """Traffic that no scheme can avoid that sends data as they are: payload in bytes of the workload's dtype."""

    sent: tuple[int, ...]
    """Least of each rank."""
    received: tuple[int, ...]
    """Least of each rank."""
    total: int
    """Least that all ranks together send."""


@dataclass(frozen=True)
class Operator:
    """A trusted statement of what is computed."""

    name: str
    summary: str
    """One line: the formula."""
    signature: str
    """What a candidate's ``run`` takes, as Python: ``rmsnorm(x, weight, eps=1e-6)``."""
    axes: tuple[str, ...]
    inputs: tuple[Buffer | Scalar, ...]
    outputs: tuple[Buffer, ...]
    dtypes: tuple[str, ...]
    """Values of ``data`` for which the operator is defined."""
    reference: Reference
    condition: Callable[..., tuple[torch.Tensor, ...]] | None
    """Takes ``Arguments``, returns S per output element (float64, broadcastable); None: S = |y64|."""
    error: ErrorModel
    cost: Callable[[Axes, str], Cost]
    laws: Mapping[str, Law]
    workloads: tuple[Workload, ...]
    exact: bool = False
    """True: integer or index outputs that must be equal, where ``compare`` needs no bound."""
    exact_laws: tuple[str, ...] = ()
    """Laws under which honest arithmetic in any order makes no error before the output is rounded.

    They draw small integers (in some laws times a power of two), so that every partial sum is a number of the narrowest
    format in which the contract lets one be kept. Only the output rounding is admitted there: ``ErrorModel.for_exact``.
    """
    source: str = ""
    """Where the definition comes from."""
    baselines: tuple[str, ...] = field(default=())
    """Files of ``validators/baselines`` that are timed against, the strongest first as far as known."""
    rivals: tuple[str, ...] = field(default=())
    """Strong implementations that no baseline stands for: a speed-up measured here says nothing of them."""
    family: str = "values"
    """``values``: one process, tensors in and out. ``allocation``: serves allocation traces. ``comm``: one process a
    rank, with an axis ``world_size``; a law then returns the arguments of every rank, one tuple a rank (without the
    group, which the judge adds), reference and condition take these tuples and return the outputs of rank 0, of
    rank 1, and so on in one tuple."""
    wire: Callable[..., Wire] | None = None
    """For ``comm``: takes what ``reference`` takes, returns the least traffic of a dense scheme."""
    lossy: Callable[..., tuple[torch.Tensor, ...]] | None = None
    """For ``comm``: takes a unit roundoff and what ``reference`` takes, returns by how much each output may be further
    off, absolutely, if a scheme says that it rounds what it sends to such a format. None: nothing may be rounded."""

    def error_under(self, law: str) -> ErrorModel:
        """Return the bound that holds under a law."""
        return self.error.for_exact() if law in self.exact_laws else self.error


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator at ``seed``."""
    made = torch.Generator(device="cpu")
    made.manual_seed(seed)
    return made


def numel(axes: Axes, names: Sequence[str]) -> int:
    """Multiply the sizes of the named axes; a name may be a product ``a*b``."""
    size = 1
    for name in names:
        for factor in name.split("*"):
            size *= int(factor) if factor.isdigit() else axes[factor]
    return size


def itemsize(dtype: str) -> int:
    """Return the bytes of one element of a dtype name of ``DTYPES``."""
    return DTYPES[dtype].itemsize
