"""What an operator's bound has to tell apart: honest arithmetic in another order, and the cheap ways to an answer."""

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kb.validators import operators
from kb.validators.operators.spec import DTYPES, Arguments, Operator, Workload, generator
from kb.validators.runtime.compare import compare_output

Results = tuple[torch.Tensor, ...]
_PACKAGE = "kb.validators.operators."
LOWER = {"float32": torch.float16, "float16": torch.float8_e4m3fn, "bfloat16": torch.float8_e4m3fn}
"""The format one step below, to which a cheat rounds its inputs."""


class _Narrow(ModuleType):
    """Stands in for torch in the operators' modules and says float32 where they say float64."""

    float64: torch.dtype

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


@contextlib.contextmanager
def arithmetic(dtype: torch.dtype) -> Iterator[None]:
    """Have the references compute in another format than float64."""
    narrow = _Narrow("torch")
    narrow.float64 = dtype
    touched: list[Any] = [
        m for name, m in sys.modules.items() if name.startswith(_PACKAGE) and getattr(m, "torch", None) is torch
    ]
    for module in touched:
        module.torch = narrow
    double = torch.Tensor.double
    torch.Tensor.double = lambda self: self.to(dtype)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.double = double  # type: ignore[method-assign]
        for module in touched:
            module.torch = torch


def draw(spec: Operator, workload: Workload, *, seed: int) -> Arguments:
    """Draw the arguments of one call."""
    return spec.laws[workload.law](workload.axes, workload.dtype, generator(seed))


def _rounded(value: object, lower: torch.dtype) -> object:
    """Round a floating tensor to a narrower format and back, saturating; leave anything else."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize < 2:
        return value
    if torch.finfo(lower).bits >= torch.finfo(value.dtype).bits:
        return value
    most = torch.finfo(lower).max
    return value.to(torch.float64).clamp(-most, most).to(lower).to(value.dtype)


def _without_last(value: object, axis: int) -> object:
    """Zero the last slice along an axis."""
    if not isinstance(value, torch.Tensor) or value.dim() <= axis or value.shape[axis] < 2:
        return value
    made = value.clone()
    made.select(axis, -1).zero_()
    return made


def _stored(spec: Operator, results: Results, dtype: str) -> Results:
    """Round once, to the dtypes of the operator's outputs, saturating where the format has no infinity."""
    names = [dtype if buffer.dtype == "data" else buffer.dtype for buffer in spec.outputs]
    return tuple(_to(one, DTYPES[name]) for one, name in zip(results, names, strict=True))


def _to(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if value.is_floating_point() and dtype == torch.float8_e4m3fn:
        return value.clamp(-448, 448).to(dtype)
    return value.to(dtype)


@dataclass(frozen=True)
class Case:
    """One call of an operator: arguments, and what is expected."""

    spec: Operator
    workload: Workload
    arguments: Arguments
    expected: Results
    scales: tuple[torch.Tensor | None, ...]

    def error(self, results: Results, *, truncated: bool = False) -> float:
        """Return the worst error over its bound of some results; infinite where none can be given.

        Args:
            results: float64 or exact results of every output.
            truncated: Store bfloat16 by cutting bits off, as Triton's interpreter does.
        """
        dtype = self.workload.dtype
        worst, error = 0.0, self.spec.error_under(self.workload.law)
        stored = _stored(self.spec, results, dtype)
        if truncated:
            stored = tuple(_cut(one, to=got) for one, got in zip(results, stored, strict=True))
        for got, want, buffer, scale in zip(stored, self.expected, self.spec.outputs, self.scales, strict=True):
            found = compare_output(got, want, buffer=buffer, dtype=dtype, error=error, scale=scale)
            exact = found.verdict != "passed" and not want.is_floating_point()
            worst = max(worst, math.inf if exact or found.max_normalised is None else found.max_normalised)
        return worst


def _cut(value: torch.Tensor, *, to: torch.Tensor) -> torch.Tensor:
    if to.dtype != torch.bfloat16:
        return to
    wide = value.to(torch.float32)
    return torch.where(wide.isfinite(), (wide.view(torch.int32) & -65536).view(torch.float32), wide).to(torch.bfloat16)


def cases(name: str, *, seed: int) -> Iterator[Case]:
    """Yield one case of every awkward workload of an operator."""
    spec = operators.load(name)
    for workload in spec.workloads:
        if workload.use == "awkward":
            arguments = draw(spec, workload, seed=seed)
            expected = spec.reference(*arguments)
            scales = spec.condition(*arguments) if spec.condition else (None,) * len(expected)
            yield Case(spec, workload, arguments, expected, scales)


def cheats(case: Case) -> dict[str, Results]:
    """Return the results of the cheap ways to an answer, by name; those that do not apply are left out."""
    spec, arguments, expected = case.spec, case.arguments, case.expected
    made: dict[str, Results] = {
        "zeros": tuple(torch.zeros_like(one) for one in expected),
        "constant": tuple(torch.full_like(one, float(one.to(torch.float64).nanmean())) for one in expected),
        "scaled": tuple(one * 1.05 if one.is_floating_point() else one + 1 for one in expected),
    }
    lower = LOWER.get(case.workload.dtype)
    if lower is not None and any(_changes(one, _rounded(one, lower)) for one in arguments):
        made["lower inputs"] = spec.reference(*(_rounded(one, lower) for one in arguments))
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    for place, given in enumerate(tensors):
        if any(given.shape == want.shape for want in expected):
            made[f"identity {place}"] = tuple(
                given.to(want.dtype) if given.shape == want.shape else want for want in expected
            )
    for place, axis, dropped in _drops(arguments):
        made[f"dropped {place}.{axis}"] = spec.reference(*arguments[:place], dropped, *arguments[place + 1 :])
    return made


def _drops(arguments: Arguments) -> Iterator[tuple[int, int, object]]:
    """Yield each floating input without its last slice along each axis: (which input, axis, what is left of it)."""
    for place, one in enumerate(arguments):
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.itemsize > 1:
            for axis in range(one.dim()):
                dropped = _without_last(one, axis)
                if _changes(one, dropped):
                    yield place, axis, dropped


def _changes(before: object, after: object) -> bool:
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    one, other = (torch.nan_to_num(value.to(torch.float64)) for value in (before, after))
    return not torch.equal(one, other)


def honest(case: Case) -> dict[str, float]:
    """Return the errors of honest arithmetic, by name: rounded once, cut off, and the same formula in float32."""
    made = {"rounded once": case.error(case.expected), "truncated": case.error(case.expected, truncated=True)}
    if not case.spec.exact:
        with arithmetic(torch.float32):
            results = case.spec.reference(*case.arguments)
        made |= {"float32": case.error(results), "float32, truncated": case.error(results, truncated=True)}
    return made


@dataclass
class Margin:
    """How far honest work and cheap work lie from an operator's bound, in bounds."""

    honest: float = 0.0
    """Largest error of honest arithmetic; must stay below 1."""
    cheap: dict[str, float] = field(default_factory=dict)
    """Cheat to its largest error over the workloads that show it; must lie above 1."""

    def smallest(self) -> tuple[float, str]:
        """Return the smallest error of a cheat, and which one it is."""
        return min((value, name) for name, value in self.cheap.items())


_BY_DTYPE = ("zeros", "constant", "scaled", "lower inputs")
"""Cheats that must be refused in every dtype; the others in at least one workload, as some are the answer in one."""


def margin(name: str, *, seeds: Iterable[int]) -> Margin:
    """Measure one operator over its awkward workloads."""
    found = Margin()
    for seed in seeds:
        for case in cases(name, seed=seed):
            if not any(one.numel() for one in case.expected):
                continue
            found.honest = max([found.honest, *honest(case).values()])
            for cheat, results in cheats(case).items():
                # Of the slices that may be dropped, some are of no consequence: the worst one of an input counts.
                key = f"{cheat}, {case.workload.dtype}" if cheat in _BY_DTYPE else cheat.partition(".")[0]
                error = case.error(results)
                if cheat.startswith("identity") and error == 0.0:
                    continue  # one key, or no change of size: the input is the answer
                found.cheap[key] = max(found.cheap.get(key, 0.0), error)
    return found


def table(margins: dict[str, Margin]) -> str:
    """Return docs/operators.md."""
    lines = [
        "# Operators and their margins",
        "",
        "How far an operator's error bound lies from honest work and from the cheapest cheat. 1 is the bound itself:",
        "honest arithmetic (rounded once, cut off, the same formula in float32) stays below it, and every cheap way to",
        "an answer (zeros, constants, 5 % too large, inputs rounded to the next lower format, an input handed back, a",
        "slice of an input dropped) lies above. An operator for which no bound separates the two is not admitted.",
        "",
        "Where the output has 16 bits or fewer, its rounding dominates the bound, and cutting off comes close to 1 by",
        "construction. Written by `python -m tests.validators.operators.cheap`; every run of the tests measures again.",
        "",
        "| operator | honest, at most | cheat, at least | which cheat |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in margins.items():
        value, which = found.smallest()
        shown = "not equal" if math.isinf(value) else f"{value:.3g}"
        lines.append(f"| `{name}` | {found.honest:.2f} | {shown} | {which} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    file = Path(__file__).parents[3] / "docs" / "operators.md"
    file.write_text(table({name: margin(name, seeds=(1, 2)) for name in operators.VALUES}), encoding="utf-8")
