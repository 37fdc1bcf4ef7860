"""The matrix of entries and devices: how each entry reaches each device, and what is proven there."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb import catalogue, evidence, hardware, transfer
from kb.config import Root
from kb.hardware import DeviceScope
from kb.models.hit import Best
from kb.models.vocabulary import EVIDENCE, FRESHNESS
from kb.service import indexing
from kb.store import index
from kb.values import plain

_SQL = f"SELECT id, version, outcome, withdrawn, facts, cells, ignored FROM {catalogue.ENTRY} ORDER BY id"  # noqa: S608


@dataclass(frozen=True)
class Cell:
    """One entry on one device."""

    transfer: str
    evidence: str
    freshness: str
    reasons: tuple[str, ...]
    measured: Mapping[str, Any] | None = None
    """The best figure that our judge measured there, as plain values; None without one."""


@dataclass(frozen=True)
class StatusRow:
    """One entry on all asked devices."""

    id: str
    version: int
    outcome: str
    withdrawn: str | None
    cells: tuple[Cell, ...]
    """In the order of ``Status.devices``."""


@dataclass(frozen=True)
class Stale:
    """One piece of evidence that may not hold any more, or does not."""

    id: str
    device: str
    regime: str | None
    level: str
    freshness: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """The whole matrix."""

    devices: tuple[str, ...]
    rows: tuple[StatusRow, ...]
    left_out: tuple[str, ...]
    """Entries that could not be read, one line each."""
    levels: Mapping[str, Mapping[str, int]]
    """Device → level → entries; withdrawn ones are not counted."""
    freshness: Mapping[str, Mapping[str, int]]
    """Device → freshness → entries; withdrawn ones are not counted."""
    stale: tuple[Stale, ...]
    """What is stale or refuted on the asked devices, and why."""
    ignored: tuple[str, ...]
    """Records that count for nothing: path and why."""


def status(root: Root, devices: Sequence[str] | None = None) -> Status:
    """Say how every entry reaches every device and what is proven there.

    Args:
        root: The knowledge base.
        devices: Device names, families or architectures; None for all of the hardware table.

    Returns:
        The matrix, rows by id.

    Raises:
        DeviceUnavailableError: A name is not known; the hint names the nearest.
    """
    names = list(devices) if devices else [each.name for each in hardware.devices()]
    scopes = [hardware.resolve(name) for name in names]

    def read(
        connection: sqlite3.Connection,
    ) -> tuple[list[tuple[Any, ...]], tuple[index.Problem, ...], evidence.Today]:
        stored = [(*row[:4], *map(catalogue.stored_json, row[4:])) for row in connection.execute(_SQL)]
        return stored, index.problems_of(connection), evidence.today_of(connection)

    stored, problems, today = indexing.ask(root, read)
    labels = tuple(scope.label for scope in scopes)
    rows = []
    stale: list[Stale] = []
    ignored: list[str] = []
    for name, version, outcome, withdrawn, facts, cells, unread in stored:
        row = StatusRow(name, version, outcome, withdrawn, tuple(_cells(name, facts, cells, scopes, today)))
        rows.append(row)
        stale.extend(_stale(name, cells, scopes, today))
        ignored.extend(unread)
    counted = [row for row in rows if row.withdrawn is None]
    return Status(
        labels,
        tuple(rows),
        tuple(each.message for each in problems),
        {label: _count(EVIDENCE, (row.cells[at].evidence for row in counted)) for at, label in enumerate(labels)},
        {label: _count(FRESHNESS, (row.cells[at].freshness for row in counted)) for at, label in enumerate(labels)},
        tuple(stale),
        tuple(ignored),
    )


def _cells(
    entry_id: str,
    facts: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    scopes: Sequence[DeviceScope],
    today: evidence.Today,
) -> Iterator[Cell]:
    known = transfer.facts_of(entry_id, facts, measured_on=evidence.measured_on(cells, today))
    for scope in scopes:
        reached = transfer.assess(known, scope)
        stands = evidence.standing(facts, scope=scope, transfer=reached, cells=cells, today=today)
        figure: Best | None = evidence.best(facts, scope=scope, cells=cells, today=today) if cells else None
        measured = None if figure is None or figure.source is not None else plain(figure)
        yield Cell(
            reached.kind,
            stands.level,
            stands.freshness,
            tuple(dict.fromkeys((*reached.reasons, *stands.reasons))),
            measured if isinstance(measured, dict) else None,
        )


def _stale(
    entry_id: str, cells: Sequence[Mapping[str, Any]], scopes: Sequence[DeviceScope], today: evidence.Today
) -> Iterator[Stale]:
    asked = {name for scope in scopes for name in scope.device_names}
    for cell, how, reasons in evidence.live(cells, today):
        if cell["device"] in asked and how in ("stale", "refuted"):
            yield Stale(entry_id, cell["device"], cell["regime"], cell["level"], how, reasons)


def _count(names: Sequence[str], found: Iterable[str]) -> dict[str, int]:
    counted = Counter(found)
    return {name: counted[name] for name in names}
