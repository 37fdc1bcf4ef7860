"""Keep the catalogue up to date with the entries."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kb import catalogue
from kb.config import Root, derived_candidates, derived_folder
from kb.errors import IndexStaleError, StoreError
from kb.models.document import Row
from kb.retrieval import lexicon
from kb.store import index, journal
from kb.store.locks import locked

if TYPE_CHECKING:
    from kb.store.files import StoredEntry

T = TypeVar("T")


@dataclass(frozen=True)
class Indexed:
    """Where the catalogue is and what was done to it."""

    file: Path
    report: index.Report | None
    """None if it was up to date."""


def row_of(stored: "StoredEntry", *, cells: Sequence[Mapping[str, Any]] = (), ignored: Sequence[str] = ()) -> Row:
    """Make the catalogue's row of an entry.

    Args:
        stored: The entry as read from its files.
        cells: What its records prove.
        ignored: Records that count for nothing, one line each.

    Returns:
        Facts, searchable document, and the best evidence anywhere.
    """
    from kb import evidence
    from kb.retrieval import document

    kind, topic, slug = stored.id.split("/")
    file = stored.file
    operators = dict.fromkeys([*([file.operator] if file.operator else []), *file.applies_to])
    withdrawn = file.withdrawn
    return Row(
        id=stored.id,
        version=file.version,
        kind=kind,
        topic=topic,
        slug=slug,
        operator=file.operator,
        title=file.title,
        summary=file.summary,
        outcome=file.outcome,
        language=file.language,
        license=file.license,
        digest=stored.digest,
        withdrawn=f"{withdrawn.date.isoformat()}: {withdrawn.reason}" if withdrawn else None,
        evidence=evidence.standing(stored.facts, cells=cells).level,
        dtypes=tuple(file.dtypes),
        tags=tuple(file.tags),
        operators=tuple(operators),
        facts=stored.facts,
        readme=stored.readme,
        document=document.build(stored.id, stored.facts, stored.readme),
        files=stored.names,
        cells=tuple(cells),
        ignored=tuple(ignored),
    )


def _sources(root: Root) -> index.Sources:
    from kb.service import proving

    judges = proving.judges_of(root.entries)

    def make(stored: "StoredEntry") -> Row:
        cells, ignored = proving.cells_of(root.entries, stored, judges)
        return row_of(stored, cells=cells, ignored=ignored)

    return index.Sources(
        make_row=make,
        lexicon_digest=lexicon.digest(),
        lexicon_rows=lexicon.rows,
        basis=judges.digest,
        evidence_meta=proving.meta_of,
    )


def _current(root: Root, folders: tuple[Path, ...]) -> Path | None:
    tree = catalogue.tree_state(root.entries)
    digest = lexicon.digest()
    for folder in folders:
        file = folder / catalogue.FILE
        if file.is_file() and index.is_current(file, tree, digest):
            return file
    return None


def _ignore_in_git(folder: Path) -> None:
    ignore = folder / ".gitignore"
    if folder.name == ".kb" and not ignore.exists():
        try:
            ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {ignore}: {error.strerror}", hint="check free space") from error


def update(
    root: Root,
    *,
    rebuild: bool = False,
    progress: Callable[[int, int], None] | None = None,
    wait_s: float = 60.0,
) -> Indexed:
    """Bring the catalogue up to date: build, update, or heal it.

    Args:
        root: The knowledge base.
        rebuild: Make it anew in any case.
        progress: Called with the number of entries looked at and their total.
        wait_s: How long to wait for another process that indexes, in seconds.

    Returns:
        Its path and, unless it was up to date, a report with every entry that was left out.

    Raises:
        ConfigError: No folder can be written.
        StoreError: The catalogue or the entries cannot be read or written.
    """
    if not root.entries.is_dir():
        raise IndexStaleError(f"no folder {root.entries}", hint=f"kb init {root.path}")
    if not root.packaged:
        journal.recover(root.entries)
    if not rebuild:
        current = _current(root, derived_candidates(root))
        if current is not None:
            return Indexed(current, None)
    folder = derived_folder(root)
    with locked(folder / "index.lock", wait_s=wait_s), journal.reading(root.entries):
        file = folder / catalogue.FILE
        # Whoever held the lock before may have done the work already.
        if not rebuild and _current(root, (folder,)) is not None:
            return Indexed(file, None)
        _ignore_in_git(folder)
        report = index.update(file, root.entries, _sources(root), rebuild=rebuild, progress=progress)
    return Indexed(file, report)


def ensure_index(root: Root, *, rebuild: bool = False, progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the path of an up-to-date catalogue.

    Args:
        root: The knowledge base.
        rebuild: Make it anew in any case.
        progress: Called with the number of entries looked at and their total.

    Raises:
        ConfigError: No folder can be written.
        StoreError: The catalogue or the entries cannot be read or written.
    """
    return update(root, rebuild=rebuild, progress=progress).file


def ask(root: Root, question: Callable[[sqlite3.Connection], T]) -> T:
    """Put a question to an up-to-date catalogue; one that turns out to be damaged is built anew, once.

    Args:
        root: The knowledge base.
        question: Called with a reader.

    Raises:
        ConfigError: No folder can be written.
        StoreError: The catalogue or the entries cannot be read or written.
    """
    try:
        with closing(catalogue.open_reader(ensure_index(root))) as connection:
            return question(connection)
    except (IndexStaleError, sqlite3.DatabaseError, LookupError) as error:
        if index.is_busy(error) or index.is_busy(error.__cause__):
            raise
    with closing(catalogue.open_reader(ensure_index(root, rebuild=True))) as connection:
        return question(connection)


def state_of(root: Root, file: Path) -> Literal["current", "older than the files", "unreadable"]:
    """Say what state a catalogue is in, without changing it.

    Args:
        root: The knowledge base.
        file: Path of its catalogue.

    Raises:
        IndexStaleError: Another process holds it.
    """
    if index.is_current(file, catalogue.tree_state(root.entries), lexicon.digest()):
        return "current"
    try:
        catalogue.open_reader(file).close()
    except IndexStaleError:
        return "unreadable"
    return "older than the files"


def left_out(file: Path) -> tuple[index.Problem, ...]:
    """Return the entries that the last update left out of a catalogue.

    Args:
        file: Path of the catalogue.

    Raises:
        IndexStaleError: It is missing or corrupt.
    """
    connection = catalogue.open_reader(file)
    try:
        return index.problems_of(connection)
    finally:
        connection.close()
