"""Writes the catalogue through SQLModel, in one transaction."""

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from sqlalchemy import Connection, Table, delete, event, insert, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel, create_engine

from kb import catalogue
from kb.errors import StoreError
from kb.models.document import LexiconRow, Row
from kb.store.index import CorruptCatalogueError, busy_error, is_busy
from kb.store.tables import TABLES, EntryDtypeTable, EntryOperatorTable, EntryTable, LexiconTable, MetaTable

_CHUNK = 400
"""Most values in one IN list; SQLite once allowed 999."""


def _table(model: type[SQLModel]) -> Table:
    return cast("Table", model.__table__)  # type: ignore[attr-defined]


def _remove_file(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _values(rowid: int, row: Row, stamp: str, content: str) -> dict[str, object]:
    plain = {name: getattr(row, name) for name in catalogue.ENTRY_COLUMNS}
    for name in ("dtypes", "tags", "operators", "facts", "files", "cells", "ignored"):
        plain[name] = json.dumps(plain[name], ensure_ascii=False, allow_nan=False)
    return {"rowid": rowid, **plain, "stamp": stamp, "content": content}


class CatalogueWriter:
    """One transaction on a catalogue; leaving the ``with`` block commits it, an error rolls it back.

    Args:
        file: Path of the catalogue.
        fresh: Build a new file beside it and swap it in at the end, so that readers see the old one until then.
        wait_s: How long to wait for another writer, in seconds.
    """

    def __init__(self, file: Path, *, fresh: bool, wait_s: float = 10.0) -> None:
        self._file = file
        self._fresh = fresh
        self._path = file.with_name(file.name + ".new") if fresh else file
        if fresh:
            _remove_file(self._path)
        self._engine = create_engine(f"sqlite:///{self._path}", poolclass=NullPool, connect_args={"timeout": wait_s})
        event.listen(self._engine, "connect", self._on_connect)
        event.listen(self._engine, "begin", self._on_begin)
        self._open: Connection | None = None

    @staticmethod
    def _on_connect(connection: Any, _record: object) -> None:  # noqa: ANN401 - SQLAlchemy hands over a DB-API connection
        # The driver's own transactions would begin too late for the lock; SQLAlchemy's begin event does it instead.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    @staticmethod
    def _on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def __enter__(self) -> Self:
        try:
            self._open = self._engine.connect()
            self._open.begin()
            if self._fresh:
                SQLModel.metadata.create_all(self._open, tables=[_table(model) for model in TABLES])
                self._open.execute(text(catalogue.CREATE_TEXT))
        except (DBAPIError, sqlite3.Error) as error:
            self._close()
            if self._fresh:
                _remove_file(self._path)
            raise self._translate(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._open is not None:
                if self._fresh:
                    self._run(text(f"INSERT INTO {catalogue.TEXT}({catalogue.TEXT}) VALUES ('optimize')"))  # noqa: S608
                self._open.commit()
                # A reader that may not write the folder ignores the log: empty it if no reader is in the way.
                self._open.connection.execute("PRAGMA busy_timeout = 200")
                self._open.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (DBAPIError, sqlite3.Error) as failure:
            raise self._translate(failure) from failure
        finally:
            self._close()
            if self._fresh and kind is not None:
                _remove_file(self._path)
        if self._fresh and kind is None:
            self._swap_in()

    def _swap_in(self) -> None:
        for suffix in ("-wal", "-shm", "-journal"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        os.replace(self._path, self._file)  # noqa: PTH105 - Path.replace says the same; this names the system call

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._engine.dispose()

    def _translate(self, error: BaseException) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if is_busy(cause):
            return busy_error(self._file)
        if "no such module: fts5" in str(cause):
            return StoreError("this Python's SQLite has no full-text search (FTS5)", hint="kb doctor")
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if not self._fresh and code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return CorruptCatalogueError(f"{self._file} is corrupt: {cause}", hint="kb index --rebuild")
        return StoreError(f"cannot write {self._file}: {cause}", hint="check free space and permissions")

    def _run(self, statement: Any, values: Sequence[Mapping[str, object]] | None = None) -> None:  # noqa: ANN401
        if self._open is None:
            raise StoreError("the catalogue's writer is closed")
        try:
            if values is None:
                self._open.execute(statement)
            elif values:
                self._open.execute(statement, values)
        except (DBAPIError, sqlite3.Error) as error:
            raise self._translate(error) from error

    def put(self, rows: Sequence[tuple[int, Row, str, str]]) -> None:
        """Write entries, replacing those with the same rowid.

        Args:
            rows: rowid, row, stamp of the files (empty: look again) and digest of the content.
        """
        if not self._fresh:
            self.remove([rowid for rowid, _, _, _ in rows])
        self._run(insert(_table(EntryTable)), [_values(*each) for each in rows])
        pairs = [
            {"entry_id": rowid, "dtype": dtype} for rowid, row, _, _ in rows for dtype in dict.fromkeys(row.dtypes)
        ]
        self._run(insert(_table(EntryDtypeTable)), pairs)
        pairs = [
            {"entry_id": rowid, "operator": name} for rowid, row, _, _ in rows for name in dict.fromkeys(row.operators)
        ]
        self._run(insert(_table(EntryOperatorTable)), pairs)
        documents = [
            {
                "rowid": rowid,
                "title": row.document.title,
                "tags": row.document.tags,
                "facets": row.document.facets,
                "text": row.document.text,
            }
            for rowid, row, _, _ in rows
        ]
        statement = f"INSERT INTO {catalogue.TEXT}(rowid, title, tags, facets, text) "
        self._run(text(statement + "VALUES (:rowid, :title, :tags, :facets, :text)"), documents)

    def remove(self, rowids: Sequence[int]) -> None:
        """Remove entries by rowid; unknown ones are ignored."""
        for start in range(0, len(rowids), _CHUNK):
            chunk = rowids[start : start + _CHUNK]
            self._run(
                text(f"DELETE FROM {catalogue.TEXT} WHERE rowid = :rowid"),  # noqa: S608
                [{"rowid": rowid} for rowid in chunk],
            )
            entry = _table(EntryTable)
            self._run(delete(entry).where(entry.c.rowid.in_(chunk)))
            for model in (EntryDtypeTable, EntryOperatorTable):
                side = _table(model)
                self._run(delete(side).where(side.c.entry_id.in_(chunk)))

    def restamp(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Note the new state of files whose content is the same: stamp, rowid."""
        statement = text(f"UPDATE {catalogue.ENTRY} SET stamp = :stamp WHERE rowid = :rowid")  # noqa: S608
        self._run(statement, [{"stamp": stamp, "rowid": rowid} for stamp, rowid in pairs])

    def set_lexicon(self, rows: Sequence[LexiconRow]) -> None:
        """Replace the lexicon."""
        self._run(delete(_table(LexiconTable)))
        values = [
            {"term": row.term, "facet": row.facet, "canonical": row.canonical, "weight": row.weight} for row in rows
        ]
        self._run(insert(_table(LexiconTable)), values)

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write values of the meta table."""
        meta = _table(MetaTable)
        self._run(delete(meta).where(meta.c.key.in_(list(values))))
        self._run(insert(meta), [{"key": key, "value": value} for key, value in values.items()])
