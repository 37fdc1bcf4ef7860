"""The matrix of entries and devices: how each entry reaches each device, and what is proven there."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from kb import catalogue, evidence, hardware, transfer
from kb.config import Root
from kb.service import indexing

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
    file = indexing.ensure_index(root)
    with closing(catalogue.open_reader(file)) as connection:
        stored = connection.execute(_SQL).fetchall()
    rows = []
    for name, version, outcome, withdrawn, text in stored:
        plain = catalogue.stored_json(text)
        facts = transfer.facts_of(name, plain)
        cells = []
        for scope in scopes:
            reached = transfer.assess(facts, scope)
            standing = evidence.standing(plain, scope=scope, transfer=reached)
            cells.append(Cell(reached.kind, standing.level, standing.freshness, (*reached.reasons, *standing.reasons)))
        rows.append(StatusRow(name, version, outcome, withdrawn, tuple(cells)))
    left_out = tuple(each.message for each in indexing.left_out(file))
    return Status(tuple(scope.label for scope in scopes), tuple(rows), left_out)
