"""A profile as operator rows with measured shares, and what no rule could name."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kb.importers.traces.profile import Key, Operation, Profile
from kb.importers.traces.rules import Rules
from kb.importers.traces.shapes import axes_of, dtype_of
from kb.models.documents import TargetOperator, Unnamed

MOST_ROWS = 80
"""Rows of their own; what is smaller is put together by operator."""
MOST_UNNAMED = 30
"""Kernels without an operator that are listed one by one; the rest stands in one line."""
_MOST_KERNELS = 3
_LONGEST_NAME = 160
_SMALLEST = 1e-9
"""Shares below are no different from none in a file."""

_DTYPE_MARKS = (
    ("nvfp4", re.compile(r"e2m1|nvfp4|nv_?float4", re.IGNORECASE)),
    ("float8_e4m3fn", re.compile(r"e4m3|fp8|_qq", re.IGNORECASE)),
    ("bfloat16", re.compile(r"bf16|bfloat16", re.IGNORECASE)),
    ("float16", re.compile(r"f16|half|fp16|_h?s?884|s16816", re.IGNORECASE)),
    ("float32", re.compile(r"f32|float|sgemm", re.IGNORECASE)),
)


@dataclass
class _Group:
    time_us: float = 0.0
    calls: int = 0
    kernels: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True)
class Reconciled:
    """What a profile became."""

    rows: tuple[TargetOperator, ...]
    """By share, largest first."""
    unnamed: tuple[Unnamed, ...]
    named_share: float
    """Of the time, 0 to 1."""
    total_us: float


def _shown(key: Key) -> str:
    name = key.kernel or (key.operation.name if key.operation is not None else "")
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _dtype(key: Key) -> str | None:
    """Return the dtype that a kernel's name says, else that of what launched it."""
    marked = next((dtype for dtype, mark in _DTYPE_MARKS if mark.search(key.kernel)), None) if key.kernel else None
    return marked or dtype_of(key.operation)


def reconcile(profile: Profile, rules: Rules, *, steps: int, phase: str | None) -> Reconciled:
    """Give every kernel's time to an operator, or report it as unnamed.

    Args:
        profile: With time in it.
        rules: As :func:`kb.importers.traces.rules.load` gave them.
        steps: By how many steps calls are divided; at least 1.
        phase: Of the rows; None if they belong to no single one.

    Returns:
        Rows and unnamed kernels; their shares add up to 1 but for rounding.
    """
    total = profile.total_us
    groups: dict[tuple[str, tuple[tuple[str, int], ...], str | None], _Group] = defaultdict(_Group)
    strange: dict[str, _Group] = defaultdict(_Group)
    passed_on = _passed_on(profile, rules)
    for key, spent in profile.spent.items():
        named = rules.name(key)
        if named is None:
            group = strange[_shown(key)]
        else:
            axes = axes_of(named.operator, key.operation)
            group = groups[named.operator, tuple(axes.items()), _dtype(key)]
        group.time_us += spent.time_us
        group.calls += spent.calls - passed_on.get(key, 0)
        group.kernels[_shown(key)] += spent.time_us
    rows = _rows(groups, total=total, steps=steps, phase=phase)
    unnamed = _unnamed(strange, total=total, steps=steps)
    lost = math.fsum(one.time_us for one in strange.values())
    return Reconciled(tuple(rows), tuple(unnamed), 1 - lost / total, total)


def _passed_on(profile: Profile, rules: Rules) -> dict[Key, int]:
    """Return how many calls of an operation only led to another one of the same operator, which counts instead."""
    found: dict[Key, int] = defaultdict(int)
    for (outer, inside), count in profile.held.items():
        one = rules.name(outer)
        others = (rules.name(Key("", Operation(name))) for name in inside)
        if one is not None and any(other is not None and other.operator == one.operator for other in others):
            found[outer] += count
    return found


def _rows(
    groups: Mapping[tuple[str, tuple[tuple[str, int], ...], str | None], _Group],
    *,
    total: float,
    steps: int,
    phase: str | None,
) -> list[TargetOperator]:
    ranked = sorted(groups.items(), key=lambda item: (-item[1].time_us, str(item[0])))
    made = [
        _row(operator, dict(axes), [dtype] if dtype else [], group, total=total, steps=steps, phase=phase)
        for (operator, axes, dtype), group in ranked[:MOST_ROWS]
    ]
    rest: dict[str, _Group] = defaultdict(_Group)
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    for (operator, _, dtype), group in ranked[MOST_ROWS:]:
        rest[operator].time_us += group.time_us
        rest[operator].calls += group.calls
        for name, spent in group.kernels.items():
            rest[operator].kernels[name] += spent
        if dtype:
            kinds[operator][dtype] = None
    made += [
        _row(operator, {}, list(kinds[operator]), group, total=total, steps=steps, phase=phase, what="other sizes")
        for operator, group in sorted(rest.items(), key=lambda item: -item[1].time_us)
    ]
    kept = [row for row in made if row is not None]
    return sorted(kept, key=lambda row: -(row.share or 0))


def _row(
    operator: str,
    axes: dict[str, int],
    dtypes: list[str],
    group: _Group,
    *,
    total: float,
    steps: int,
    phase: str | None,
    what: str = "",
) -> TargetOperator | None:
    share = _rounded(group.time_us / total)
    if share < _SMALLEST:
        return None
    sizes = " ".join(f"{axis}={size}" for axis, size in axes.items())
    name = ", ".join(each for each in (operator.replace("_", " "), what, sizes, " ".join(dtypes)) if each)
    heaviest = sorted(group.kernels, key=lambda each: (-group.kernels[each], each))
    return TargetOperator.model_validate(
        {
            "operator": operator,
            "name": name,
            "axes": axes,
            "dtypes": dtypes,
            "calls_per_step": _rounded(group.calls / steps) or None,
            "share": share,
            "share_from": "measured",
            "phase": phase,
            "kernels": heaviest[:_MOST_KERNELS],
        }
    )


def _unnamed(strange: Mapping[str, _Group], *, total: float, steps: int) -> list[Unnamed]:
    ranked = sorted(strange.items(), key=lambda item: (-item[1].time_us, item[0]))
    shown = [(name, group.time_us, group.calls) for name, group in ranked[:MOST_UNNAMED]]
    rest = [group for _, group in ranked[MOST_UNNAMED:]]
    if rest:
        name = f"{len(rest)} more kernels"
        shown.append((name, math.fsum(one.time_us for one in rest), sum(one.calls for one in rest)))
    return [
        Unnamed(name=name, share=_rounded(spent / total), calls_per_step=_rounded(calls / steps) or None)
        for name, spent, calls in shown
        if spent / total >= _SMALLEST
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
