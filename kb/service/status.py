"""The matrix of entries and devices: how each entry reaches each device, and what is proven there."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kb import catalogue, evidence, hardware, transfer
from kb.config import Root
from kb.service import indexing
from kb.store import index

_SQL = f"SELECT id, version, outcome, withdrawn, facts FROM {catalogue.ENTRY} ORDER BY id"  # noqa: S608


@dataclass(frozen=True)
class Cell:
    """One entry on one device."""

    transfer: str
    evidence: str
    freshness: str
    reasons: tuple[str, ...]


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
class Status:
    """The whole matrix."""

    devices: tuple[str, ...]
    rows: tuple[StatusRow, ...]
    left_out: tuple[str, ...]
    """Entries that could not be read, one line each."""


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

    def read(connection: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], tuple[index.Problem, ...]]:
        stored = [(*row[:-1], catalogue.stored_json(row[-1])) for row in connection.execute(_SQL)]
        return stored, index.problems_of(connection)

    stored, problems = indexing.ask(root, read)
    rows = []
    for name, version, outcome, withdrawn, plain in stored:
        facts = transfer.facts_of(name, plain)
        cells = []
        for scope in scopes:
            reached = transfer.assess(facts, scope)
            standing = evidence.standing(plain, scope=scope, transfer=reached)
            cells.append(Cell(reached.kind, standing.level, standing.freshness, (*reached.reasons, *standing.reasons)))
        rows.append(StatusRow(name, version, outcome, withdrawn, tuple(cells)))
    left_out = tuple(each.message for each in problems)
    return Status(tuple(scope.label for scope in scopes), tuple(rows), left_out)
