"""Entries as the catalogue has them: all in a scope, or one, with what stands for them. Standard library only."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from kb import evidence
from kb.catalogue import ENTRY, ENTRY_COLUMNS, decoded, stored_json
from kb.errors import EntryNotFoundError, IndexStaleError
from kb.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kb.retrieval.filters import Scope


def listing(connection: sqlite3.Connection, scope: Scope, *, figures: bool = False) -> list[dict[str, Any]]:
    """Return all entries in a scope by id: facts, prose and file names left out.

    Args:
        connection: An up-to-date catalogue.
        scope: The hard filters. Evidence and transfer are those on its device, if it names one.
        figures: Add ``best``, the figure to show for each.

    Raises:
        IndexStaleError: The catalogue cannot be read.
    """
    columns = ("id", "version", "title", "kind", "operator", "outcome", "dtypes", "tags", "language", "license",
               "evidence", "withdrawn", "summary")  # fmt: skip
    condition, parameters = scope.condition()
    names = ", ".join(f"e.{name}" for name in (*columns, "facts", "cells"))
    sql = f"SELECT {names} FROM {ENTRY} AS e WHERE {condition} ORDER BY e.id"  # noqa: S608
    try:
        rows = connection.execute(sql, parameters).fetchall()
    except sqlite3.Error as error:
        raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error
    today = evidence.today_of(connection)
    found = []
    for *row, facts, cells in rows:
        entry = decoded(columns, tuple(row))
        # What stands for an entry without records, anywhere, is in its column; its facts need not be read.
        if scope.devices is not None or figures or cells != "[]":
            entry |= _stands(entry["id"], stored_json(facts), stored_json(cells), today, scope, figures=figures)
        else:
            entry |= {"freshness": "unknown", "evidence_device": None, "transfer": None}
        found.append(entry)
    return found


def _stands(
    entry_id: str,
    facts: Mapping[str, Any],
    cells: list[Mapping[str, Any]],
    today: evidence.Today,
    scope: Scope,
    *,
    figures: bool,
) -> dict[str, Any]:
    """Return what stands for an entry on the asked device, or anywhere."""
    reached = None
    if scope.devices is not None:
        from kb import transfer

        known = transfer.facts_of(entry_id, facts, measured_on=evidence.measured_on(cells, today))
        reached = transfer.assess(known, scope.devices)
    stands = evidence.standing(facts, scope=scope.devices, transfer=reached, cells=cells, today=today)
    found = {
        "evidence": stands.level,
        "freshness": stands.freshness,
        "evidence_device": stands.device,
        "transfer": None if reached is None else reached.kind,
    }
    return found | (
        {"best": plain(evidence.best(facts, scope=scope.devices, cells=cells, today=today))} if figures else {}
    )


def get(connection: sqlite3.Connection, entry_id: str) -> dict[str, Any]:
    """Return everything the catalogue has on one entry, and what stands for it today.

    Args:
        connection: An up-to-date catalogue.
        entry_id: As for :func:`raw`.

    Raises:
        EntryNotFoundError: No entry has this id; the hint names the nearest.
        IndexStaleError: The catalogue cannot be read.
    """
    return described(raw(connection, entry_id), evidence.today_of(connection))


def raw(connection: sqlite3.Connection, entry_id: str) -> dict[str, Any]:
    """Return all columns of one entry.

    Args:
        connection: An up-to-date catalogue.
        entry_id: The id; a path of its folder and a slug that only one entry has will do.

    Raises:
        EntryNotFoundError: No entry has this id; the hint names the nearest.
        IndexStaleError: The catalogue cannot be read.
    """
    wanted = entry_id.strip().replace("\\", "/").rstrip("/")
    wanted = wanted.rpartition("entries/")[2]
    columns = ", ".join(ENTRY_COLUMNS)
    try:
        row = connection.execute(f"SELECT {columns} FROM {ENTRY} WHERE id = ?", (wanted,)).fetchone()  # noqa: S608
        if row is None:
            ids = [found[0] for found in connection.execute(f"SELECT id FROM {ENTRY} ORDER BY id")]  # noqa: S608
            named = [one for one in ids if one.endswith("/" + wanted)]
            if len(named) != 1:
                raise _not_found(entry_id, named, ids)
            row = connection.execute(f"SELECT {columns} FROM {ENTRY} WHERE id = ?", (named[0],)).fetchone()  # noqa: S608
    except (sqlite3.Error, UnicodeEncodeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise EntryNotFoundError("no entry has this id: it is not text", hint="kb list") from error
        raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error
    return decoded(ENTRY_COLUMNS, row)


def described(found: dict[str, Any], today: evidence.Today | None = None) -> dict[str, Any]:
    """Say of an entry what stands for it anywhere today, with its cells and the figure to show.

    Args:
        found: All columns of the entry.
        today: What its cells are held against; None for nothing.
    """
    today = today or evidence.Today()
    facts, cells = found["facts"], found["cells"]
    stands = evidence.standing(facts, cells=cells, today=today)
    return found | {
        "evidence": stands.level,
        "freshness": stands.freshness,
        "evidence_device": stands.device,
        "best": plain(evidence.best(facts, cells=cells, today=today)),
        "cells": evidence.shown(cells, today),
    }


def _not_found(entry_id: str, named: list[str], ids: list[str]) -> EntryNotFoundError:
    if named:
        return EntryNotFoundError(
            f"{entry_id!r} is the slug of {len(named)} entries", hint=f"one of {', '.join(named)}"
        )
    import difflib

    near = difflib.get_close_matches(entry_id, ids, n=3, cutoff=0.3)
    hint = f"nearest: {', '.join(near)}" if near else "kb list"
    return EntryNotFoundError(f"no entry has the id {entry_id!r}", hint=hint)
