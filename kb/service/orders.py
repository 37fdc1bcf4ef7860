"""What the judge is asked about an entry, as plain values: the same here and in a bundle."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kb import hardware, transfer
from kb.errors import DeviceUnavailableError, ValidatorError
from kb.models.entry import EntryFile
from kb.service.judging import admitted_workloads
from kb.store.files import StoredEntry
from kb.validators.operators.names import ALLOCATION, NAMES, VALUES

if TYPE_CHECKING:
    from kb.validators.operators.spec import Workload

CALLS = (3, 6)
"""Least and most calls of one workload."""

USES = ("awkward", "target")
"""Small and ugly workloads, for values; real shapes of targets, for a GPU."""


QUICK: dict[str, Any] = {
    "pairs": 6, "extensions": 1, "confirm": False, "least_calls": 2, "most_bytes": 64 << 20,
    "slot_bytes": 1 << 30, "draw_s": 5.0, "exact_s": 2.0,
}  # fmt: skip
"""The effort of a quick timing, as fields of ``shaping.Effort``."""

_QUICK_MS, _QUICK_BYTES = 0.5, 140_000_000
"""Workloads that take longer than this at best, or move more, are left out of a quick timing where there are others."""

_INTERPRETED = ("triton",)
"""Languages that a CPU only interprets: values, never speed."""

_ON_CPU = ("triton", "torch", "python")
"""Languages that a CPU runs or interprets."""


def uses_on(device: str) -> tuple[str, ...]:
    """Return which workloads are judged on a device unless others are asked for."""
    return ("awkward",) if device == "cpu" else USES


def order_of(
    stored: StoredEntry,
    *,
    uses: Sequence[str],
    timed_on: str | None = None,
    regimes: Sequence[Sequence[str]] | None = None,
    quick: bool = False,
    shapes: int = 1,
) -> dict[str, Any]:
    """Return the order for one entry.

    Args:
        stored: A valid entry with code.
        uses: ``awkward``, ``target`` or both.
        timed_on: Take times too, on a device of this kind, ``cpu`` or ``cuda``; not of what a CPU only interprets.
        regimes: Pairs of cache and launch to time in; None for the usual ones.
        quick: Time one of the large workloads alone, and judge it and the awkward ones; confirm nothing: another run
            does.
        shapes: How many workloads of targets a quick timing times; with two or more an awkward one too.

    Returns:
        ``id``, ``version``, ``digest``, ``entry_point``, ``language``, ``operator``, ``uses``, ``calls``,
        ``workloads``, ``timed``, ``regimes`` and ``effort``.

    Raises:
        ValidatorError: Its dtypes and limits admit no workload, or torch is missing.
    """
    workloads = admitted_workloads(stored.file, uses=uses)
    if not workloads:
        raise ValidatorError(f"{stored.id}: its dtypes and limits admit no workload", hint="widen limits or the spec")
    timed = _timed(stored, timed_on, shapes=shapes if quick else None) if timed_on is not None else []
    if quick and timed:
        workloads = [one for one in workloads if one.use == "awkward" or one in timed]
    return {
        "id": stored.id,
        "version": stored.file.version,
        "digest": stored.digest,
        "entry_point": str(stored.file.entry_point),
        "language": stored.file.language,
        "operator": str(stored.file.operator),
        "uses": list(uses),
        "calls": list(CALLS),
        "workloads": [_plain(one) for one in workloads],
        "timed": [_plain(one) for one in timed],
        "regimes": None if regimes is None else [list(one) for one in regimes],
        "effort": dict(QUICK) if quick else None,
    }


def _plain(workload: "Workload") -> dict[str, Any]:
    return {**asdict(workload), "axes": dict(workload.axes)}


def _timed(stored: StoredEntry, kind: str, *, shapes: int | None) -> "list[Workload]":
    """Return the workloads that are worth timing, of those that the entry admits: all of targets, or some shapes."""
    if stored.file.operator not in VALUES or (kind == "cpu" and stored.file.language in _INTERPRETED):
        return []
    from kb.validators import operators
    from kb.validators.runtime import sessions

    worth = sessions.workloads_of(operators.load(str(stored.file.operator)), device=kind, dtypes=stored.file.dtypes)
    admitted = admitted_workloads(stored.file, uses=("target",))
    found = [one for one in worth if one in admitted]
    if shapes is None or not found:
        return found
    chosen = _spread(str(stored.file.operator), found, shapes)
    if shapes > 1:
        small = [one for one in admitted_workloads(stored.file, uses=("awkward",)) if one.dtype == chosen[0].dtype]
        chosen += _spread(str(stored.file.operator), small, 1)
    return chosen


def _spread(operator: str, found: "list[Workload]", count: int) -> "list[Workload]":
    """Return the workload that takes longest, the one that takes least time, and those that come next to the longest.

    Those whose measuring takes long itself are left out, where there are others.
    """
    from kb.validators import operators

    spec = operators.load(operator)

    def milliseconds(one: "Workload") -> float:
        cost = spec.cost(one.axes, one.dtype)
        # Rates of the order of today's devices: 3 TB/s and 500 TFLOP/s.
        return max(cost.essential_bytes / 3e9, cost.flops / 5e11)

    def is_short(one: "Workload") -> bool:
        return milliseconds(one) <= _QUICK_MS and spec.cost(one.axes, one.dtype).essential_bytes <= _QUICK_BYTES

    ordered = sorted(filter(is_short, found), key=milliseconds, reverse=True)
    ordered = ordered or sorted(found, key=milliseconds)[:1]
    return [*ordered[:1], *ordered[:0:-1][:1], *ordered[1:-1]][:count]


def source_of(stored: StoredEntry) -> bytes:
    """Return the code that is handed to the judge."""
    return stored.files[_file(stored.file)]


def _file(facts: EntryFile) -> str:
    return str(facts.entry_point).partition(":")[0]


def not_judged(stored: StoredEntry) -> str | None:
    """Say why an entry cannot be judged anywhere, or None."""
    if not stored.file.entry_point or not stored.file.operator:
        return "it has no code to judge"
    if stored.file.operator not in NAMES:
        return f"there is no operator {stored.file.operator}"
    file, _, function = stored.file.entry_point.partition(":")
    if function != "run" and stored.file.operator not in ALLOCATION:
        return "its entry point is not called run"
    others = [name for name in stored.files if name.endswith(".py") and name != file]
    return "it has more than one source file" if others else None


def not_on(stored: StoredEntry, arch: str) -> str | None:
    """Say why an entry cannot be judged on an architecture, or None.

    Args:
        stored: The entry.
        arch: ``cpu``, ``sm_90`` and so on.
    """
    forbidden = stored.file.cannot_run_on
    if arch in forbidden:
        return f"not on {arch}: {forbidden[arch]}"
    if arch == "cpu":  # values alone: the interpreter needs no feature of a GPU
        return None if stored.file.language in _ON_CPU else f"{stored.file.language} does not run on a cpu"
    try:
        scope = hardware.resolve_arch(arch)
    except DeviceUnavailableError:
        return f"{arch} is not in the hardware table"
    facts = transfer.facts_of(stored.id, stored.file.model_dump(mode="json", by_alias=True))
    reached = transfer.assess(facts, scope)
    return None if reached.runnable else "; ".join(reached.reasons)
