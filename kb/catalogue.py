"""Table and column names of the catalogue, and the SQL that store and retrieval share. Standard library only.

The catalogue is one SQLite file (WAL). ``kb.store`` writes it through SQLModel; the fast path reads it with
``sqlite3`` alone. ``SCHEMA`` is stored in it: another number means rebuild.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kb.config import config_folder
from kb.errors import IndexStaleError
from kb.values import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 3
"""Raise it with every change of a table or of what is written into one."""

FILE = "catalogue.db"

ENTRY = "entry"
"""Columns: rowid, id, version, kind, topic, slug, operator, title, summary, outcome, language, license, digest,
withdrawn, evidence, dtypes, tags, operators, facts, readme, files, cells, ignored. The last eight but readme are JSON
text. Two more, ``stamp`` and ``content``, tell the indexer what it has already read."""

ENTRY_COLUMNS: tuple[str, ...] = (
    "id", "version", "kind", "topic", "slug", "operator", "title", "summary", "outcome", "language", "license",
    "digest", "withdrawn", "evidence", "dtypes", "tags", "operators", "facts", "readme", "files",
    "cells", "ignored",
)  # fmt: skip

JSON_COLUMNS = frozenset({"dtypes", "tags", "operators", "facts", "files", "cells", "ignored"})
"""Columns of an entry that are JSON text."""

ENTRY_DTYPE = "entry_dtype"
"""Columns: entry_id (rowid of entry), dtype. For the hard scope in SQL."""

ENTRY_OPERATOR = "entry_operator"
"""Columns: entry_id, operator. The entry's operator and all of ``applies_to``."""

LEXICON = "lexicon"
"""Columns: term (lower-case phrase), facet, canonical, weight. One row a way to say something."""

META = "meta"
"""Columns: key, value. Keys: ``schema``, ``tree`` (state of the files, or ``unsettled``: look again), ``lexicon``
(digest), ``built_utc``, ``problems`` (JSON array of objects with ``where``, ``message``, ``hint``: what was left
out), ``judge`` and ``packages`` (state of what evidence is held against, see :func:`is_of_today`; of packages a JSON
array, because several installations may have the same versions), ``basis`` (digest of the judge and its keys),
``toolchains`` (JSON: device to versions) and ``timing_days`` (age limit of times)."""

TEXT = "entry_text"
"""FTS5 table over title, tags, facets, text; rowid = entry rowid; porter stemming over unicode61."""

CREATE_TEXT = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {TEXT} USING fts5(title, tags, facets, text, "
    "tokenize = \"porter unicode61 remove_diacritics 2 tokenchars '_'\")"
)

WEIGHTS: tuple[float, float, float, float] = (4.0, 2.0, 3.0, 1.0)
"""BM25 weights of title, tags, facets and text, in that order; tuned on a corpus with distractors."""


DRIVER = "/proc/driver/nvidia/version"
"""Where Linux tells the version of NVIDIA's driver."""

_TREE_ATTEMPTS = 8


def tree_files(entries: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files below ``entries``, without following links, hidden names and byte code left out."""
    stack = [str(entries)]
    while stack:
        with os.scandir(stack.pop()) as listing:
            for item in listing:
                if item.name.startswith(".") or item.name == "__pycache__":
                    continue
                if item.is_dir(follow_symlinks=False):
                    stack.append(item.path)
                else:
                    yield item


def tree_rows(entries: Path) -> list[str]:
    """Return one sorted line a file below ``entries``: relative name, size, mtime and ctime, parted by NUL.

    Raises:
        IndexStaleError: The folder cannot be listed.
    """
    cut = len(str(entries)) + 1
    for attempt in range(_TREE_ATTEMPTS):
        try:
            rows = []
            for item in tree_files(entries):
                stat = item.stat(follow_symlinks=False)
                rows.append(f"{item.path[cut:]}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}")
        except OSError as error:
            # An entry that is being replaced can vanish between listing its parent and listing it.
            if isinstance(error, FileNotFoundError) and entries.is_dir() and attempt + 1 < _TREE_ATTEMPTS:
                continue
            message = f"cannot list {error.filename}: {error.strerror}"
            raise IndexStaleError(message, hint="check its permissions") from error
        rows.sort()
        return rows
    raise AssertionError("unreachable")


def state_of(rows: list[str]) -> str:
    """Return the digest of the lines of :func:`tree_rows`."""
    return sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def tree_state(entries: Path) -> str:
    """Return a digest of names, sizes and times of all files below ``entries``; reads no file.

    Raises:
        IndexStaleError: The folder cannot be listed.
    """
    return state_of(tree_rows(entries))


def judge_state() -> str:
    """Return a digest of names, sizes and times of the judge's specs and revision, and of the settings and driver.

    Reads no file but the driver's version, which is not one. Where the state is another one than the catalogue's,
    evidence may have to be computed anew.
    """
    package = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - a search pays for every Path
    places = [os.path.join(package, "validators"), os.path.join(os.path.dirname(package), "validators")]  # noqa: PTH118, PTH120
    folder = next((place for place in places if os.path.isdir(place)), package)  # noqa: PTH112
    rows = [
        _stat_row(f"{folder}/runtime/fingerprint.py"),
        _stat_row(f"{config_folder()}/config.toml").partition("\0")[2],
    ]
    try:
        with os.scandir(f"{folder}/operators") as listing:
            rows += sorted(_stat_row(item.path) for item in listing if item.name.endswith(".py"))
    except OSError:
        rows.append("none")
    try:
        with open(DRIVER, encoding="utf-8") as file:  # noqa: PTH123
            rows.append(file.readline())
    except OSError:
        rows.append("none")
    return state_of(rows)


def packages_state() -> str | None:
    """Return which Python this is and when packages were last installed for it; None where it was told to see none."""
    if sys.flags.no_site:
        return None
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return "\n".join([sys.version.split(" ", 1)[0], *map(_stat_row, folders)])


def _stat_row(path: str) -> str:
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:
        return f"{path}\0none"
    return f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}"


def is_of_today(connection: sqlite3.Connection) -> bool:
    """Tell whether a catalogue's evidence was held against the judge, the packages and the settings of today.

    Raises:
        IndexStaleError: The catalogue is damaged.
    """
    packages = packages_state()
    if packages is not None and packages not in stored_json(read_meta(connection, "packages") or "[]"):
        return False
    return read_meta(connection, "judge") == judge_state()


def open_reader(file: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Open a catalogue for reading only.

    Args:
        file: Path of ``catalogue.db``.
        any_thread: Let several threads use the connection, one after the other.

    Returns:
        A connection with a busy time-out of five seconds.

    Raises:
        IndexStaleError: It is missing, corrupt, locked for too long, or of another schema.
    """
    if not file.is_file():
        raise IndexStaleError(f"no catalogue at {file}", hint="kb index")
    uri = "file:" + quote(str(file))
    # A WAL catalogue in a folder that cannot be written has no shared-memory file; nobody can write it either.
    mode = "?mode=ro" if os.access(file.parent, os.W_OK) else "?immutable=1"
    connection = None
    try:
        connection = sqlite3.connect(uri + mode, uri=True, timeout=5.0, check_same_thread=not any_thread)
        row = connection.execute(f"SELECT value FROM {META} WHERE key = 'schema'").fetchone()  # noqa: S608
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where a table's definition is damaged
        if connection is not None:
            connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"{file} is locked by another process"
            raise IndexStaleError(message, hint="wait for it to end, or end it, and try again") from error
        raise IndexStaleError(f"{file}: {error}", hint="kb index --rebuild") from error
    if row is None or row[0] != str(SCHEMA):
        connection.close()
        raise IndexStaleError(f"{file} has another schema", hint="kb index")
    return connection


def read_meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return one value of the meta table, or None.

    Raises:
        IndexStaleError: The catalogue is damaged.
    """
    try:
        row = connection.execute(f"SELECT value FROM {META} WHERE key = ?", (key,)).fetchone()  # noqa: S608
    except sqlite3.Error as error:
        raise IndexStaleError(f"the catalogue is damaged: {error}", hint="kb index --rebuild") from error
    return None if row is None else str(row[0])


def decoded(columns: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """Return a row by column name, JSON parsed.

    Raises:
        IndexStaleError: The catalogue is damaged.
    """
    return {
        name: stored_json(value) if name in JSON_COLUMNS else value for name, value in zip(columns, row, strict=True)
    }


def stored_json(text: str) -> Any:  # noqa: ANN401 - plain JSON
    """Parse JSON that the catalogue keeps.

    Raises:
        IndexStaleError: It is none, so the catalogue is damaged.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise IndexStaleError(f"the catalogue is damaged: {error}", hint="kb index --rebuild") from error
