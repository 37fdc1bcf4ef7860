"""What covers each operator row of a target: its entries, what is proven of them on a device, and what is missing."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb import catalogue, evidence, hardware, transfer
from kb.config import Root
from kb.errors import StoreError
from kb.hardware import DeviceScope
from kb.models.documents import TargetOperator
from kb.models.facts import EntryFacts
from kb.models.vocabulary import EVIDENCE
from kb.service import indexing
from kb.service.targets import find_target, spec_cost

GOALS: Mapping[str, float] = {"memory": 0.85, "compute": 0.70}
"""Share of the roofline floor that a kernel should reach, by what bounds it; launches have no such goal."""

HEAD = ("operator row", "share", "entry", "language", "evidence", "roofline", "speed-up", "gap")

_SQL = (
    f"SELECT id, operator, language, facts, cells FROM {catalogue.ENTRY} "  # noqa: S608 - a constant
    "WHERE withdrawn IS NULL AND outcome = 'works' AND kind IN ('kernel', 'allocation', 'comm') ORDER BY id"
)
_MEASURED = EVIDENCE.index("measured")

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Covering:
    """One entry of an operator row."""

    id: str
    language: str
    level: str
    freshness: str
    roofline: float | None
    """Best share of the floor at the row's fixed sizes, by what bounds it; at others where none of those was timed."""
    bound: str | None
    """``memory``, ``compute`` or ``launch``: of that figure."""
    workload: str | None
    fits: bool
    """Whether that figure is of the row's fixed sizes and dtypes."""
    speedup: float | None
    """Of that figure, against the fastest baseline."""
    gap: str
    """What is missing; empty if nothing is."""


@dataclass(frozen=True)
class CoveredRow:
    """One operator row of a target."""

    operator: str
    name: str
    share: float | None
    entries: tuple[Covering, ...]
    """The furthest first."""
    gap: str
    """Of the best entry; ``no entry`` without one."""


@dataclass(frozen=True)
class Coverage:
    """A target, row by row."""

    target: str
    device: str
    rows: tuple[CoveredRow, ...]
    """By share of time, the greatest first."""


@dataclass(frozen=True)
class _Entry:
    """What the catalogue has of an entry."""

    id: str
    operator: str
    language: str
    facts: Plain
    cells: Sequence[Plain]


def coverage(root: Root, targets: Sequence[str], device: str) -> list[Coverage]:
    """Say what covers each operator row of targets.

    What is said follows from the files of the knowledge base and the judge that is installed, never from what else the
    machine has: evidence is held against no toolchain.

    Args:
        root: The knowledge base.
        targets: Ids or their ends.
        device: A device or family.

    Raises:
        DeviceUnavailableError: No such device is known.
        EntryNotFoundError: A target is not in the knowledge base, or a short name is that of several.
    """
    scope = hardware.resolve(device)

    def read(connection: sqlite3.Connection) -> list[_Entry]:
        rows = connection.execute(_SQL)
        return [
            _Entry(name, operator, language, catalogue.stored_json(facts), catalogue.stored_json(cells))
            for name, operator, language, facts, cells in rows
        ]

    entries = indexing.ask(root, read)
    found = []
    for name in targets:
        entry_id, target = find_target(root, name)
        ranked = sorted(target.operators, key=lambda row: -(row.share or 0))
        found.append(Coverage(entry_id, scope.label, tuple(_row(one, entries, scope) for one in ranked)))
    return found


def _row(row: TargetOperator, entries: Sequence[_Entry], scope: DeviceScope) -> CoveredRow:
    made = [_covering(one, row, scope) for one in entries if one.operator == row.operator and _admits(one, row)]
    made.sort(key=lambda one: (-EVIDENCE.index(one.level), not one.fits, -(one.roofline or 0), one.id))
    return CoveredRow(row.operator, row.name, row.share, tuple(made), made[0].gap if made else "no entry")


def _admits(entry: _Entry, row: TargetOperator) -> bool:
    """Tell whether an entry takes a row's dtypes and fixed sizes."""
    dtypes = entry.facts.get("dtypes") or []
    if dtypes and not set(dtypes) & set(row.dtypes):
        return False
    limits = transfer.facts_of(entry.id, entry.facts).limits
    return all(limits[axis].violation(size) is None for axis, size in row.axes.items() if axis in limits)


def _covering(entry: _Entry, row: TargetOperator, scope: DeviceScope) -> Covering:
    today = evidence.Today()
    known: EntryFacts = transfer.facts_of(entry.id, entry.facts, measured_on=evidence.measured_on(entry.cells, today))
    reached = transfer.assess(known, scope)
    stands = evidence.standing(entry.facts, scope=scope, transfer=reached, cells=entry.cells, today=today)
    figure, fits = _figure(entry, row, scope)
    return Covering(
        entry.id,
        entry.language,
        stands.level,
        stands.freshness,
        None if figure is None else figure["roofline"],
        None if figure is None else figure["bound"],
        None if figure is None else figure["workload"],
        fits,
        None if figure is None else figure["ratio"],
        _gap(stands.level, stands.freshness, figure),
    )


def _gap(level: str, freshness: str, figure: Plain | None) -> str:
    """Say what is missing of an entry."""
    if freshness in ("infeasible", "refuted"):
        return freshness
    if EVIDENCE.index(level) < _MEASURED:
        return "not measured"
    if figure is None:
        return ""
    goal, reached = GOALS.get(figure["bound"] or ""), figure["roofline"]
    if goal is None or reached is None:
        return "no shape beyond launch cost" if figure["bound"] == "launch" else ""
    return "" if reached >= goal else f"{100 * (goal - reached):.0f} points below {100 * goal:.0f} %"


def _figure(entry: _Entry, row: TargetOperator, scope: DeviceScope) -> tuple[Plain | None, bool]:
    """Return the figure nearest to the floor where the floor is work, not a launch, and whether it is of the row."""
    figures = list(figures_on(entry.cells, scope.device_names))
    own = [one for one in figures if _is_of(one, row)]
    chosen = own or figures
    if not chosen:
        return None, False

    def rank(one: Plain) -> tuple[bool, float, float, str]:
        return one["bound"] in GOALS, one["roofline"] or 0.0, one["ratio"], one["workload"]

    return max(chosen, key=rank), bool(own)


def figures_on(cells: Sequence[Plain], devices: Sequence[str]) -> Iterator[Plain]:
    """Yield the figures of the code as it is now on some devices, those left out that were refuted or are stale."""
    for cell in cells:
        if cell["same_code"] and cell["state"] == "holds" and not cell["stale"] and cell["device"] in devices:
            yield from cell["figures"]


def _is_of(figure: Plain, row: TargetOperator) -> bool:
    """Tell whether a figure was taken at a row's fixed sizes, and in one of its dtypes where these are the operator's.

    A row of a quantised product names the dtype of its weights, a workload that of the activations.
    """
    words = set(figure["workload"].partition(" (")[0].split(", "))
    if not {f"{axis} {size}" for axis, size in row.axes.items()} <= words:
        return False
    spec = spec_cost(row.operator)
    own = set(row.dtypes) & set(() if spec is None else spec.dtypes)
    return not own or bool(own & words)


def table(found: Coverage) -> list[tuple[str, ...]]:
    """Return the rows of :data:`HEAD` of a target; a row's name and share stand at its first entry."""
    made: list[tuple[str, ...]] = []
    for row in found.rows:
        share = "" if row.share is None else f"{100 * row.share:.1f} %"
        if not row.entries:
            made.append((f"{row.operator}: {row.name}", share, "–", "", "", "", "", row.gap))
        for number, one in enumerate(row.entries):
            first = (f"{row.operator}: {row.name}", share) if number == 0 else ("", "")
            fresh = "" if one.freshness in ("fresh", "unknown") else f", {one.freshness}"
            made.append((*first, one.id, one.language, one.level + fresh, *_figures(one), one.gap))
    return made


def _figures(one: Covering) -> tuple[str, str]:
    other = "" if one.fits else ", elsewhere"
    roofline = "" if one.roofline is None else f"{100 * one.roofline:.0f} % ({one.bound}{other})"
    return roofline, "" if one.speedup is None else f"{one.speedup:.2f}×"


def summary(found: Coverage) -> str:
    """Count a target's rows in one line."""
    measured = sum(any(EVIDENCE.index(one.level) >= _MEASURED for one in row.entries) for row in found.rows)
    twice = sum(len(row.entries) > 1 for row in found.rows)
    none = sum(not row.entries for row in found.rows)
    return (
        f"{found.target}: {len(found.rows)} rows, {measured} measured on {found.device}, {twice} with two entries or "
        f"more, {none} with none"
    )


def page(found: Sequence[Coverage], command: str) -> str:
    """Return the page of some targets as Markdown.

    Args:
        found: As :func:`coverage` gave it.
        command: What makes the page, to be named on it.
    """
    lines = [
        "# Coverage of the targets",
        "",
        f"Made by `{command}`; do not edit. Every figure is that of a signed record, which `kb evidence ID` names. The "
        "share is the row's part of a step's time. The roofline is the best share of the floor that the machine's "
        "measured peaks allow, at the row's fixed sizes and dtype, `elsewhere` where none of those was timed; the goal "
        f"is {100 * GOALS['memory']:.0f} % where memory bounds it and {100 * GOALS['compute']:.0f} % where arithmetic "
        "does. The speed-up is of the same figure, against the fastest baseline.",
    ]
    for one in found:
        lines += ["", f"## {one.target} on {one.device}", "", f"{summary(one)}.", ""]
        lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table(one)]
    return "\n".join([*lines, ""])


def put_page(file: Path, text: str) -> None:
    """Write the page.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}", hint="--report FILE") from error
