"""Have a candidate judged, and describe what the judge knows."""

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import DeviceUnavailableError, EntryFormatError, UnknownOperatorError, ValidatorError
from kb.transfer import facts_of
from kb.validators.operators.names import ALLOCATION, NAMES

if TYPE_CHECKING:
    from kb.models.entry import EntryFile
    from kb.validators.operators.allocation import Allocation
    from kb.validators.operators.spec import Operator, Workload
    from kb.validators.runtime.report import Report

_LARGEST_BYTES = 1 << 20
_NO_TORCH = "pip install 'kernel-kb[gpu]'"


def judge_file(
    operator: str,
    file: Path,
    *,
    device: str = "cpu",
    dtypes: Sequence[str] | None = None,
    ghosts: bool = True,
    progress: Callable[[str], None] | None = None,
) -> "Report":
    """Judge one candidate file.

    Args:
        operator: Name of an operator spec.
        file: UTF-8 Python with a function ``run``, at most 1 MiB; read once.
        device: ``cpu`` or ``cuda:N``.
        dtypes: Only workloads of these dtypes; None for all of the operator.
        ghosts: Replay with each kernel left out in turn.
        progress: Called with a phrase at each step.

    Returns:
        The judge's report; a failing candidate raises nothing.

    Raises:
        UnknownOperatorError: No operator has this name.
        DeviceUnavailableError: The judge cannot use this device.
        EntryFormatError: The file cannot be read.
        ValidatorError: The judge itself cannot work here.
    """
    _known(operator)
    _reachable(device)
    return _judge(operator, _read(file), progress=progress, ghosts=ghosts, dtypes=dtypes, device=device)


def admitted_workloads(facts: "EntryFile", *, uses: Sequence[str] = ("awkward",)) -> "list[Workload]":
    """Return the workloads of an entry's operator that its dtypes and limits admit.

    Args:
        facts: Of the entry.
        uses: ``awkward``, ``target`` or both.
    """
    name = str(facts.operator)
    spec = _load_allocation(name) if name in ALLOCATION else _load(name)
    limits = facts_of("kernel/x/x", facts.model_dump(mode="json", by_alias=True)).limits
    return [
        one
        for one in spec.workloads
        if one.use in uses
        and (one.dtype in facts.dtypes or name in ALLOCATION)
        and not any(axis in one.axes and limit.violation(one.axes[axis]) for axis, limit in limits.items())
    ]


def _judge(
    operator: str,
    source: bytes,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,  # noqa: ANN401 - fields of Options
) -> "Report":
    try:
        from kb.validators.runtime.errors import JudgeError
        from kb.validators.runtime.starting import prepare

        prepare()  # the workers' torch is imported while the judge's own is
        from kb.validators.runtime.judge import Options, judge
    except ImportError as error:
        raise ValidatorError(f"the judge needs torch and numpy: {error}", hint=_NO_TORCH) from error
    try:
        return judge(operator, source, options=Options(**options), progress=progress)
    except JudgeError as error:
        raise ValidatorError(error.message, hint=error.hint) from error
    except (MemoryError, OSError) as error:
        raise ValidatorError(f"the judge could not work: {error}", hint="kb doctor; free some memory") from error


def _reachable(device: str) -> None:
    if device == "cpu":
        return
    from kb.validators.runtime import accelerator
    from kb.validators.runtime.driver import DriverError

    try:
        accelerator.facts(device)
    except (DriverError, ValueError) as error:
        raise DeviceUnavailableError(f"{device[:40]!r} cannot be used: {error}", hint="--device cpu") from error


def operator_names() -> list[dict[str, str]]:
    """Return the name and formula of every operator; formulas need torch, names do not."""
    try:
        return [{"name": name, "summary": _summary(name)} for name in NAMES]
    except ValidatorError:
        return [{"name": name, "summary": ""} for name in NAMES]


def describe_operator(name: str) -> dict[str, Any]:
    """Describe one operator.

    Args:
        name: Its name.

    Raises:
        UnknownOperatorError: No operator has this name.
        ValidatorError: torch is not installed.
    """
    _known(name)
    if name in ALLOCATION:
        return _describe_allocation(_load_allocation(name))
    spec = _load(name)
    return {
        "name": spec.name,
        "computes": spec.summary,
        "signature": spec.signature,
        "axes": list(spec.axes),
        "inputs": [_argument(one) for one in spec.inputs],
        "outputs": [_argument(one) for one in spec.outputs],
        "dtypes": list(spec.dtypes),
        "error": {f.name: getattr(spec.error, f.name) for f in dataclasses.fields(spec.error)},
        "exact": spec.exact,
        "laws": list(spec.laws),
        "workloads": [
            f"{one.use}: " + " ".join(f"{axis}={size}" for axis, size in one.axes.items()) + f" {one.dtype} {one.law}"
            for one in spec.workloads
        ],
        "baselines": _described(name, spec.baselines),
        "rivals": list(spec.rivals),
        "source": spec.source,
    }


def _described(operator: str, names: Sequence[str]) -> list[str]:
    """Say of each baseline which library call it is; one without a file stands for itself."""
    from kb.validators import baselines

    known = baselines.names(operator)
    return [f"{one}: {baselines.describe(operator, one)}" if one in known else one for one in names]


def _summary(name: str) -> str:
    return (_load_allocation(name) if name in ALLOCATION else _load(name)).summary


def _describe_allocation(spec: "Allocation") -> dict[str, Any]:
    return {
        "name": spec.name,
        "computes": spec.summary,
        "signature": [" ".join(form.contract.split()) for form in spec.forms],
        "axes": list(spec.axes),
        "laws": [f"{name}: {' '.join((law.__doc__ or '').split())}" for name, law in spec.laws.items()],
        "workloads": [
            f"{one.use}: " + " ".join(f"{axis}={size}" for axis, size in one.axes.items()) + f" {one.law}"
            for one in spec.workloads
        ],
        "metrics": [f"{name}: {meaning}" for name, meaning in spec.metrics.items()],
        "baselines": list(spec.baselines),
        "source": spec.source,
    }


def _argument(declared: object) -> str:
    axes = getattr(declared, "axes", None)
    name, doc = getattr(declared, "name", ""), getattr(declared, "doc", "")
    shape = "" if axes is None else f" [{', '.join(axes)}] {getattr(declared, 'dtype', '')}"
    return f"{name}{shape}" + (f": {doc}" if doc else "")


def nearest_operators(name: str) -> list[str]:
    """Return up to three operators whose names look like this one."""
    return difflib.get_close_matches(name[:80], NAMES, n=3, cutoff=0.4)


def _known(name: str) -> None:
    if name not in NAMES:
        near = nearest_operators(name)
        hint = f"nearest: {', '.join(near)}" if near else "kb operators"
        raise UnknownOperatorError(f"no operator is called {name[:80]!r}", hint=hint)


def _load(name: str) -> "Operator":
    try:
        from kb.validators import operators

        return operators.load(name)
    except ImportError as error:
        raise ValidatorError(f"operator specs need torch: {error}", hint=_NO_TORCH) from error


def _load_allocation(name: str) -> "Allocation":
    try:
        from kb.validators import operators

        return operators.load_allocation(name)
    except ImportError as error:
        raise ValidatorError(f"operator specs need torch: {error}", hint=_NO_TORCH) from error


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            source = stream.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise EntryFormatError(f"{file}: {error.strerror or error}", hint="give a Python file") from error
    if len(source) > _LARGEST_BYTES:
        raise EntryFormatError(f"{file}: a candidate has at most {_LARGEST_BYTES:,} bytes", hint="leave data out of it")
    try:
        source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EntryFormatError(f"{file}: expected UTF-8 text: {error}", hint="save it as UTF-8") from error
    return source
