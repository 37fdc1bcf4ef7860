"""Brings the catalogue up to date with the entries' files: incremental, one writer, readers go on.

SQLModel is imported only when rows are written, so that finding nothing to do stays cheap.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kb import catalogue
from kb.errors import EntryFormatError, IndexStaleError, StoreError
from kb.models.document import LexiconRow, Row
from kb.store import content, layout

if TYPE_CHECKING:
    from kb.store.files import StoredEntry
    from kb.store.writer import CatalogueWriter

UNSETTLED = "unsettled"
"""Tree state that equals none: a file was so young that it can change without its times changing."""

_BATCH = 500
_INSTALLATIONS = 8
"""How many installations of the same versions a catalogue remembers."""
_COARSE_NS = 1_000_000_000
_KNOWN_SQL = f"SELECT id, rowid, stamp, content, cells, ignored FROM {catalogue.ENTRY}"  # noqa: S608


@dataclass(frozen=True)
class Problem:
    """Why a folder was left out of the catalogue."""

    where: str
    """Id or path below ``entries/``."""
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class Sources:
    """What the catalogue is made from, given by the caller because store and retrieval do not know each other."""

    make_row: Callable[["StoredEntry"], Row]
    lexicon_digest: str
    lexicon_rows: Callable[[], Sequence[LexiconRow]]
    basis: str = ""
    """Digest of what decides cells besides an entry's files; where it is another, rows with records are made anew."""
    evidence_meta: Callable[[Iterable[Sequence[Mapping[str, object]]]], Mapping[str, str]] | None = None
    """Makes values of the meta table out of the cells of all entries that have some."""


@dataclass(frozen=True)
class Report:
    """What an update did."""

    total: int
    """Entries in the catalogue now."""
    written: int
    removed: int
    problems: tuple[Problem, ...]
    rebuilt: bool


@dataclass(frozen=True)
class _Known:
    rowid: int
    stamp: str
    content: str
    cells: str = "[]"
    ignored: str = "[]"

    @property
    def has_records(self) -> bool:
        return (self.cells, self.ignored) != ("[]", "[]")


@dataclass
class _Progress:
    """What has been found so far in one update."""

    problems: list[Problem] = field(default_factory=list)
    restamped: list[tuple[str, int]] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    cells: list[Sequence[Mapping[str, object]]] = field(default_factory=list)
    written: int = 0


def is_busy(error: BaseException | None) -> bool:
    """Tell whether an error of SQLite only says that somebody else holds the file."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def busy_error(file: Path) -> IndexStaleError:
    """Return the error for a catalogue that another process holds."""
    return IndexStaleError(f"{file} is locked by another process", hint="wait for it to end, or end it, and try again")


def is_current(file: Path, tree: str, lexicon_digest: str, *, check_bytes: int = 8 << 20) -> bool:
    """Tell whether a catalogue is up to date, whole and of this schema.

    Args:
        file: Path of the catalogue, which may be missing.
        tree: State of the entries' files now.
        lexicon_digest: Digest of the lexicon now.
        check_bytes: Largest catalogue whose pages are all checked.

    Raises:
        IndexStaleError: Another process holds it for too long.
    """
    try:
        with closing(catalogue.open_reader(file)) as connection:
            meta = {key: catalogue.read_meta(connection, key) for key in ("tree", "lexicon")}
            if meta != {"tree": tree, "lexicon": lexicon_digest} or not catalogue.is_of_today(connection):
                return False
            return file.stat().st_size > check_bytes or _is_whole(connection)
    except (IndexStaleError, sqlite3.Error) as error:
        if is_busy(error) or is_busy(error.__cause__):
            raise busy_error(file) from error
        return False


def _is_whole(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))


def text_is_whole(file: Path) -> bool:
    """Tell whether the full-text index of a catalogue agrees with its rows; takes a moment and the writer's place.

    Args:
        file: Path of the catalogue.

    Raises:
        IndexStaleError: Another process holds it.
    """
    command = f"INSERT INTO {catalogue.TEXT}({catalogue.TEXT}) VALUES ('integrity-check')"  # noqa: S608
    try:
        with closing(sqlite3.connect(file, timeout=10.0)) as connection:
            connection.execute(command)
            return True
    except sqlite3.Error as error:
        if is_busy(error):
            raise busy_error(file) from error
        return False


def problems_of(connection: sqlite3.Connection) -> tuple[Problem, ...]:
    """Return what the last update left out.

    Args:
        connection: A reader of the catalogue.
    """
    return tuple(Problem(**each) for each in catalogue.stored_json(catalogue.read_meta(connection, "problems") or "[]"))


def _meta_of(file: Path, keys: Sequence[str]) -> dict[str, str | None]:
    """Return values of an existing catalogue's meta table; nothing where it cannot be read."""
    try:
        with closing(catalogue.open_reader(file)) as connection:
            return {key: catalogue.read_meta(connection, key) for key in keys}
    except (IndexStaleError, sqlite3.Error):
        return {}


def _known(file: Path, lexicon_digest: str) -> dict[str, _Known] | None:
    """Return what an existing catalogue has, or None if it must be made anew."""
    try:
        with closing(catalogue.open_reader(file)) as connection:
            if catalogue.read_meta(connection, "lexicon") != lexicon_digest or not _is_whole(connection):
                return None
            return {row[0]: _Known(*row[1:]) for row in connection.execute(_KNOWN_SQL)}
    except (IndexStaleError, sqlite3.Error) as error:
        if is_busy(error) or is_busy(error.__cause__):
            raise busy_error(file) from error
        return None


def _is_settled(changed_ns: int, started_ns: int) -> bool:
    """Tell whether a file is old enough that another change of it must show in its times."""
    # Kernels stamp files with a clock that lags by up to 10 ms; some file systems count whole seconds only.
    margin = 2 * _COARSE_NS if changed_ns % _COARSE_NS == 0 else 20_000_000
    return changed_ns < started_ns - margin


def _misplaced(survey: layout.Survey) -> Iterator[Problem]:
    for path, fault in survey.strays:
        parts = path.split("/")
        if parts[-1] == layout.FACTS or (len(parts) == 3 and "." not in parts[-1]):
            yield Problem(path, f"entries/{path}: {fault}", "kb check")


def _read_one(
    entries: Path, found: layout.Found, known: _Known | None, make_row: Callable[["StoredEntry"], Row]
) -> tuple[Row | None, str]:
    """Return the row of an entry, None if its content is in the catalogue already, and the digest of the content."""
    body = content.read(entries / found.id)
    digest = body.digest
    # The digest has no more than the names of records: where some are, one may have been changed under its name.
    if known is not None and known.content == digest and not body.faults and not body.evidence:
        return None, digest
    from kb.store import files

    stored, faults = files.inspect(body, found.id)
    if stored is None:
        raise files.format_error(f"entries/{found.id}", faults)
    return make_row(stored), digest


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "check free space and permissions"
        if isinstance(error, IsADirectoryError | NotADirectoryError):
            hint = f"remove {error.filename or file}: it is not the catalogue's"
        raise StoreError(f"cannot write {file}: {error.strerror}", hint=hint) from error


class _Update:
    """One run over all folders; rows go to the catalogue in batches, so memory does not grow with the store."""

    def __init__(self, file: Path, entries: Path, sources: Sources, known: dict[str, _Known] | None) -> None:
        self._file = file
        self._entries = entries
        self._sources = sources
        self._fresh = known is None
        self._known = known or {}
        self._same_basis = known is None or _meta_of(file, ("basis",)).get("basis") == sources.basis
        # Read before any file, so that a change meanwhile shows.
        self._judge, self._packages = catalogue.judge_state(), catalogue.packages_state()
        self._next = 1 + max((each.rowid for each in self._known.values()), default=0)
        self._pending: list[tuple[int, Row, str, str]] = []
        self._stack = ExitStack()
        self._writer: CatalogueWriter | None = None
        self.progress = _Progress()

    def run(self, survey: layout.Survey, started_ns: int, progress: Callable[[int, int], None] | None) -> Report:
        """Read what changed, write it, and commit."""
        with self._stack:
            self.progress.problems.extend(_misplaced(survey))
            for done, found in enumerate(survey.found, start=1):
                self._look_at(found, started_ns)
                if progress is not None:
                    progress(done, len(survey.found))
            gone = [each.rowid for name, each in self._known.items() if name not in self.progress.kept]
            tree = survey.state if _is_settled(survey.changed_ns, started_ns) or not survey.found else UNSETTLED
            meta = self._meta(tree)
            if self._fresh or self._pending or gone or self._writer is not None:
                self._flush()
                writer = self._open()
                writer.remove(gone)
                writer.restamp(self.progress.restamped)
                writer.set_meta(meta)
            else:
                _settle(self._file, self.progress.restamped, meta)
        total = len(self.progress.kept)
        return Report(total, self.progress.written, len(gone), tuple(self.progress.problems), self._fresh)

    def _look_at(self, found: layout.Found, started_ns: int) -> None:
        known = self._known.get(found.id)
        stamp = found.stamp if _is_settled(found.changed_ns, started_ns) else ""
        if found.fault is not None:
            self.progress.problems.append(Problem(found.id, f"entries/{layout.printable(found.id)}: {found.fault}"))
            return
        settled = known is not None and known.stamp and known.stamp == found.stamp
        if known is not None and settled and (self._same_basis or not known.has_records):
            self.progress.kept.add(found.id)
            self._note_cells(known)
            return
        try:
            row, digest = _read_one(self._entries, found, known, self._sources.make_row)
        except EntryFormatError as error:
            self.progress.problems.append(Problem(found.id, error.message, error.hint))
            return
        self.progress.kept.add(found.id)
        if row is None and known is not None:
            self.progress.restamped.append((stamp, known.rowid))
            self._note_cells(known)
        elif row is not None:
            if row.cells:
                self.progress.cells.append(row.cells)
            rowid = known.rowid if known is not None else self._next
            self._next += known is None
            self._pending.append((rowid, row, stamp, digest))
            self.progress.written += 1
            if len(self._pending) >= _BATCH:
                self._flush()

    def _note_cells(self, known: _Known) -> None:
        if known.cells != "[]":
            self.progress.cells.append(catalogue.stored_json(known.cells))

    def _open(self) -> "CatalogueWriter":
        if self._writer is None:
            from kb.store.writer import CatalogueWriter

            self._writer = self._stack.enter_context(CatalogueWriter(self._file, fresh=self._fresh))
            if self._fresh:
                self._writer.set_lexicon(self._sources.lexicon_rows())
        return self._writer

    def _flush(self) -> None:
        if self._pending:
            self._open().put(self._pending)
            self._pending = []

    def _meta(self, tree: str) -> dict[str, str]:
        problems = [
            {"where": each.where, "message": each.message, "hint": each.hint} for each in self.progress.problems
        ]
        return {
            "schema": str(catalogue.SCHEMA),
            "tree": tree,
            "lexicon": self._sources.lexicon_digest,
            "built_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "problems": json.dumps(problems),
            "basis": self._sources.basis,
            "judge": self._judge,
            **self._evidence_meta(),
        }

    def _evidence_meta(self) -> dict[str, str]:
        """Return what cells are held against, and the installations that have just that."""
        found = (
            dict(self._sources.evidence_meta(self.progress.cells)) if self._sources.evidence_meta is not None else {}
        )
        before = {} if self._fresh else _meta_of(self._file, ("packages", *found))
        same = all(before.get(name) == value for name, value in found.items())
        try:
            known = catalogue.stored_json(before.get("packages") or "[]") if same else []
        except IndexStaleError:
            known = []
        own = [self._packages] if self._packages is not None else []
        return {**found, "packages": json.dumps([*own, *(one for one in known if one not in own)][:_INSTALLATIONS])}


def _settle(file: Path, restamped: Sequence[tuple[str, int]], meta: dict[str, str]) -> None:
    """Note that nothing changed but the files' times, with plain SQL."""
    try:
        with closing(sqlite3.connect(file, timeout=10.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"UPDATE {catalogue.ENTRY} SET stamp = ? WHERE rowid = ?", restamped)  # noqa: S608
            connection.executemany(
                f"INSERT OR REPLACE INTO {catalogue.META} (key, value) VALUES (?, ?)",  # noqa: S608
                meta.items(),
            )
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise (busy_error(file) if is_busy(error) else StoreError(f"cannot write {file}: {error}")) from error


def update(
    file: Path,
    entries: Path,
    sources: Sources,
    *,
    rebuild: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Bring a catalogue up to date; the caller holds the lock of its folder.

    Args:
        file: Path of the catalogue; made anew if it is missing, corrupt, of another schema or another lexicon.
        entries: The ``entries/`` folder.
        sources: How rows are made.
        rebuild: Make it anew in any case.
        progress: Called with the number of folders done and their total.

    Returns:
        What was done, with every folder that was left out; bad entries do not stop the others.

    Raises:
        IndexStaleError: Another process holds the catalogue.
        StoreError: It cannot be written.
    """
    started_ns = time.time_ns()
    survey = layout.survey(entries)
    known = None if rebuild else _known(file, sources.lexicon_digest)
    with _translated(file):
        try:
            return _Update(file, entries, sources, known).run(survey, started_ns, progress)
        except CorruptCatalogueError:
            return _Update(file, entries, sources, None).run(survey, started_ns, progress)


class CorruptCatalogueError(StoreError):
    """The catalogue turned out to be corrupt while it was being written."""
