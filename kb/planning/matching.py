"""Which entries concern a target, on which of its rows, and how each reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kb import transfer
from kb.models.facts import Transfer
from kb.models.vocabulary import TRANSFER
from kb.planning.values import Known, Match, Offer, Size, Wanted, Wish
from kb.transfer import Asked

OTHER_PHASE = 0.5
"""Fit of what concerns the whole step and was made for another phase than the target's."""

OTHER_ARCH = 0.5
"""Fit of an idea whose source names architectures, the target's not among them."""

_OF_MEMORY = frozenset({"workspace_plan", "graph_pool", "kv_block_pool"})
_PARALLEL: Mapping[str, frozenset[str]] = {
    "tensor": frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_reduce_rmsnorm"}),
    "expert": frozenset({"all_to_all"}),
    "data": frozenset({"all_reduce", "all_gather", "reduce_scatter"}),
    "pipeline": frozenset(),
}
"""Way to spread a model over devices → the collectives that it takes."""


def concerns(entry: Known, row: Wanted) -> bool:
    """Tell whether an entry is about an operator row: same operator, not another phase, no format that is not there."""
    if row.operator not in entry.operators:
        return False
    if entry.kind == "kernel" and row.operator != entry.operator:
        return False
    if entry.kind == "kernel":
        return True  # code runs in whatever phase; whether it takes the row's formats is a matter of transfer
    if entry.phases and row.phase is not None and row.phase not in entry.phases:
        return False
    return entry.kind == "config" or not entry.facts.dtypes or bool(set(entry.facts.dtypes) & set(row.dtypes))


def offers_of(entry: Known, wish: Wish, parts: Mapping[str, Known]) -> list[Offer]:
    """Return what an entry offers a target: one offer for each way in which it reaches its rows, or the whole step.

    Args:
        entry: With outcome ``works``.
        wish: The target.
        parts: Entries by id, for what combinations use.
    """
    if entry.kind in ("target", "campaign"):
        return []
    rows = _rows(entry, wish, parts)
    if rows is None:
        whole = _whole(entry, wish)
        return [whole] if whole is not None else []
    groups: dict[str, list[Match]] = {}
    reaches = _Reaches(entry, wish)
    for row in rows:
        match = _match(entry, row, reaches)
        groups.setdefault(match.transfer.kind, []).append(match)
    made = []
    for kind in sorted(groups, key=TRANSFER.index):
        matches = groups[kind]
        made.append(Offer(entry, matches[0].transfer, tuple(matches), *_fit(entry, wish)))
    return made


def _rows(entry: Known, wish: Wish, parts: Mapping[str, Known]) -> list[Wanted] | None:
    """Return the rows that an entry concerns; None if it is about the whole step."""
    if entry.kind in ("allocation", "comm"):
        return None
    if entry.kind != "combination":
        found = [row for row in wish.rows if concerns(entry, row)]
        return found if found or entry.operators else None
    if not entry.operators:
        return None
    if not any(concerns(entry, row) for row in wish.rows):
        return []
    kernels = {part.operator for one in entry.uses if (part := parts.get(one)) and part.kind == "kernel"}
    wanted = kernels | set(entry.operators)
    return [row for row in wish.rows if row.operator in wanted and _same_phase(entry, row.phase)]


def _same_phase(entry: Known, phase: str | None) -> bool:
    return not entry.phases or phase is None or phase in entry.phases


class _Reaches:
    """How one entry reaches a target, remembered by what decides it: rows are many, and most ask the same."""

    def __init__(self, entry: Known, wish: Wish) -> None:
        self._entry, self._wish = entry, wish
        self._axes = sorted({*entry.facts.limits, *entry.facts.tuned_axes})
        self._made: dict[tuple[object, ...], Transfer] = {}

    def under(self, size: Size, dtypes: tuple[str, ...]) -> Transfer:
        """Return the transfer at one size of a row."""
        axes = {axis: size.axes[axis] for axis in self._axes if axis in size.axes}
        key = (dtypes, *axes.items())
        if key not in self._made:
            asked = Asked(axes, dtypes, self._wish.device_count, self._wish.toolchain)
            self._made[key] = transfer.assess(self._entry.facts, self._wish.scope, asked=asked)
        return self._made[key]


def _match(entry: Known, row: Wanted, reaches: _Reaches) -> Match:
    """Hold an entry against a row under each of its traffic; the best class counts, for the time that has it."""
    found: dict[str, list[tuple[float, str, Transfer]]] = {}
    for size in row.sizes:
        reached = reaches.under(size, row.dtypes)
        found.setdefault(reached.kind, []).append((size.weight, size.traffic, reached))
    best = min(found, key=TRANSFER.index)
    here = found[best]
    total = sum(weight for group in found.values() for weight, _, _ in group)
    elsewhere = [
        f"{each.kind} under {traffic}: {each.reasons[0] if each.reasons else 'no reason named'}"
        for kind in sorted(found, key=TRANSFER.index)
        if kind != best
        for _, traffic, each in found[kind]
    ]
    return Match(row, here[0][2], _share(here, total), (*elsewhere, *_open_limits(entry, row, best)))


def _share(here: Sequence[tuple[float, str, Transfer]], total: float) -> float:
    return sum(weight for weight, _, _ in here) / total if total > 0 else 1.0


def _open_limits(entry: Known, row: Wanted, kind: str) -> Iterator[str]:
    if kind not in ("exact", "recompile", "retune"):
        return
    stated = set.intersection(*(set(size.axes) for size in row.sizes))
    unknown = transfer.unchecked_limits(entry.facts, dict.fromkeys(stated, 0))
    if unknown:
        yield f"{row.name}: check its limits on {', '.join(unknown)}, which the row does not state"
    missing = [dtype for dtype in row.dtypes if entry.facts.dtypes and dtype not in entry.facts.dtypes]
    if missing:
        yield f"{row.name}: it does not take {', '.join(missing)}"


def _fit(entry: Known, wish: Wish) -> tuple[float, tuple[str, ...]]:
    """Return how well an idea fits, and why not better."""
    fit, notes = 1.0, []
    arches = entry.facts.arch
    if entry.kind in ("technique", "combination") and arches:
        missing = [arch for arch in wish.scope.arches if arch not in {one.rstrip("af") for one in arches}]
        if missing:
            fit *= OTHER_ARCH
            notes.append(f"written for {', '.join(arches)}; {', '.join(missing)} is not among them")
    return fit, tuple(notes)


def _whole(entry: Known, wish: Wish) -> Offer | None:
    """Return the offer of an entry that concerns the step as a whole, or None if the target has no use for it."""
    if not has_use(entry, wish):
        return None
    asked = Asked({}, (), wish.device_count, wish.toolchain)
    reached = transfer.assess(entry.facts, wish.scope, asked=asked)
    fit, notes = _fit(entry, wish)
    if entry.phases and wish.phases and not entry.phases & wish.phases:
        fit *= OTHER_PHASE
        notes = (*notes, f"made for {', '.join(sorted(entry.phases))}; here it is {', '.join(sorted(wish.phases))}")
    return Offer(entry, reached, (), fit, notes)


def has_use(entry: Known, wish: Wish) -> bool:
    """Tell whether a target has a use for an entry about the whole step: memory of its kind, communication at all."""
    here = {row.operator for row in wish.rows}
    if entry.kind == "allocation":
        served = set(entry.operators) - _OF_MEMORY
        return not served or bool(served & here)
    if entry.kind == "comm":
        wanted: set[str] = set(here)
        for kind, count in wish.parallelism.items():
            wanted |= _PARALLEL.get(kind, frozenset()) if count > 1 else frozenset()
        named = any(count > 1 for count in wish.parallelism.values())
        return not (named or here & _collectives()) or entry.operator in wanted
    return True


def _collectives() -> frozenset[str]:
    return frozenset.union(*_PARALLEL.values())
