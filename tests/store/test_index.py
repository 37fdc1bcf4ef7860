"""The catalogue follows the files: incremental, self-healing, one writer while readers go on."""

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kb import catalogue
from kb.config import Root
from kb.errors import IndexStaleError, StoreError
from kb.models.document import Document, LexiconRow, Row
from kb.store import index
from kb.store.files import StoredEntry
from kb.store.tables import TABLES
from kb.store.writer import CatalogueWriter

WriteEntry = Callable[..., Path]


def make_row(stored: StoredEntry) -> Row:
    kind, topic, slug = stored.id.split("/")
    file = stored.file
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
        withdrawn=None,
        evidence="documented",
        dtypes=tuple(file.dtypes),
        tags=tuple(file.tags),
        operators=("rmsnorm",),
        facts=stored.facts,
        readme=stored.readme,
        document=Document(title=file.title, tags="norm", facets="bfloat16", text=stored.readme),
        files=stored.names,
    )


def sources(lexicon: str = "1") -> index.Sources:
    return index.Sources(make_row, lexicon, lambda: (LexiconRow("bf16", "dtype", "bfloat16", 1.0),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / catalogue.FILE


def settle(root: Root) -> None:
    """Let every file be old enough that its times can be trusted."""
    time.sleep(0.03)


def rows(file: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(catalogue.open_reader(file)) as connection:
        return connection.execute(sql).fetchall()


def ids(file: Path) -> list[object]:
    return [row[0] for row in rows(file, "SELECT id FROM entry ORDER BY id")]


def test_a_catalogue_has_all_that_the_contract_names(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries)
    settle(root)
    report = index.update(file, root.entries, sources())
    assert (report.total, report.written, report.removed, report.problems, report.rebuilt) == (1, 1, 0, (), True)
    sql = f"SELECT {', '.join(catalogue.ENTRY_COLUMNS)} FROM entry"  # noqa: S608
    row = dict(zip(catalogue.ENTRY_COLUMNS, rows(file, sql)[0], strict=True))
    assert (row["id"], row["version"], row["dtypes"]) == ("kernel/rmsnorm/row-per-cta", 1, '["bfloat16"]')
    assert row["files"] == '["README.md", "entry.toml", "kernel.py"]'
    assert rows(file, "SELECT * FROM entry_dtype") == [(1, "bfloat16")]
    assert rows(file, "SELECT * FROM entry_operator") == [(1, "rmsnorm")]
    assert rows(file, "SELECT term, facet, canonical, weight FROM lexicon") == [("bf16", "dtype", "bfloat16", 1.0)]
    assert rows(file, "SELECT rowid FROM entry_text WHERE entry_text MATCH 'registers OR reads'") == [(1,)]
    with closing(catalogue.open_reader(file)) as connection:
        assert catalogue.read_meta(connection, "tree") == catalogue.tree_state(root.entries)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_table_names_are_those_of_the_contract() -> None:
    named = {catalogue.ENTRY, catalogue.ENTRY_DTYPE, catalogue.ENTRY_OPERATOR, catalogue.LEXICON, catalogue.META}
    assert {str(model.__tablename__) for model in TABLES} == named


def test_only_what_changed_is_written(root: Root, write_entry: WriteEntry, file: Path) -> None:
    for number in range(5):
        write_entry(root.entries, f"kernel/rmsnorm/v{number}")
    index.update(file, root.entries, sources())
    write_entry(root.entries, "kernel/rmsnorm/v2", kernel="def run(x):\n    return 2 * x\n")
    write_entry(root.entries, "kernel/rmsnorm/v9", readme="# Zebra\n")
    for name in ("entry.toml", "README.md", "kernel.py"):
        (root.entries / "kernel/rmsnorm/v0" / name).unlink()
    settle(root)
    report = index.update(file, root.entries, sources())
    assert (report.total, report.written, report.removed, report.rebuilt) == (5, 2, 1, False)
    assert ids(file) == [f"kernel/rmsnorm/v{number}" for number in (1, 2, 3, 4, 9)]
    assert len(rows(file, "SELECT * FROM entry_dtype")) == 5
    assert len(rows(file, "SELECT rowid FROM entry_text")) == 5
    assert len(rows(file, "SELECT rowid FROM entry_text WHERE entry_text MATCH 'zebra'")) == 1
    assert index.text_is_whole(file)


def test_new_times_alone_write_no_entry(root: Root, write_entry: WriteEntry, file: Path) -> None:
    folder = write_entry(root.entries)
    index.update(file, root.entries, sources())
    os.utime(folder / "kernel.py")
    settle(root)
    assert not index.is_current(file, catalogue.tree_state(root.entries), "1")
    assert index.update(file, root.entries, sources()).written == 0
    assert index.is_current(file, catalogue.tree_state(root.entries), "1")


def test_a_file_changed_within_one_tick_of_the_clock_is_seen(root: Root, write_entry: WriteEntry, file: Path) -> None:
    for number in range(20):
        write_entry(root.entries, kernel=f"x = {number:04}\n")
        index.update(file, root.entries, sources())
        if not index.is_current(file, catalogue.tree_state(root.entries), "1"):
            index.update(file, root.entries, sources())
        digest = rows(file, "SELECT digest FROM entry")[0][0]
        index.update(file.with_name("fresh.db"), root.entries, sources(), rebuild=True)
        assert digest == rows(file.with_name("fresh.db"), "SELECT digest FROM entry")[0][0]


def test_a_young_file_leaves_the_state_unsettled(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())
    assert not index.is_current(file, catalogue.tree_state(root.entries), "1")
    settle(root)
    index.update(file, root.entries, sources())
    assert index.is_current(file, catalogue.tree_state(root.entries), "1")


def test_a_content_swap_with_forged_times_is_seen(root: Root, write_entry: WriteEntry, file: Path) -> None:
    kernel = write_entry(root.entries, kernel="x = 1\n") / "kernel.py"
    settle(root)
    index.update(file, root.entries, sources())
    before = kernel.stat()
    kernel.write_text("x = 2\n")
    os.utime(kernel, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(root)
    assert not index.is_current(file, catalogue.tree_state(root.entries), "1")
    assert index.update(file, root.entries, sources()).written == 1


def test_a_file_from_the_future_does_not_stay_unsettled(root: Root, write_entry: WriteEntry, file: Path) -> None:
    folder = write_entry(root.entries)
    os.utime(folder / "kernel.py", (time.time() + 1e6, time.time() + 1e6))
    settle(root)
    index.update(file, root.entries, sources())
    assert index.is_current(file, catalogue.tree_state(root.entries), "1")


def test_bad_entries_are_told_and_stop_nothing(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries, "kernel/rmsnorm/a")
    write_entry(root.entries, "kernel/rmsnorm/b", facts="schema = ")
    write_entry(root.entries, "technique/split-k/x")
    write_entry(root.entries, "technique/split_k/x")
    (root.entries / "kernel" / "rmsnorm" / "link").symlink_to(root.path)
    settle(root)
    report = index.update(file, root.entries, sources())
    assert ids(file) == ["kernel/rmsnorm/a", "technique/split-k/x"]
    assert len(report.problems) == 3
    with closing(catalogue.open_reader(file)) as connection:
        assert index.problems_of(connection) == report.problems
    assert index.is_current(file, catalogue.tree_state(root.entries), "1")


def test_an_entry_that_broke_leaves_the_catalogue_and_comes_back(
    root: Root, write_entry: WriteEntry, file: Path
) -> None:
    folder = write_entry(root.entries)
    index.update(file, root.entries, sources())
    good = (folder / "entry.toml").read_bytes()
    (folder / "entry.toml").write_bytes(b"\xff")
    assert index.update(file, root.entries, sources()).total == 0
    assert ids(file) == []
    (folder / "entry.toml").write_bytes(good)
    index.update(file, root.entries, sources())
    assert len(ids(file)) == 1


def test_another_schema_or_lexicon_rebuilds(
    root: Root, write_entry: WriteEntry, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry(root.entries)
    settle(root)
    index.update(file, root.entries, sources())
    assert not index.is_current(file, catalogue.tree_state(root.entries), "2")
    assert index.update(file, root.entries, sources("2")).rebuilt
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "SCHEMA", 999)
        assert not index.is_current(file, catalogue.tree_state(root.entries), "2")
        assert index.update(file, root.entries, sources("2")).rebuilt
    assert index.update(file, root.entries, sources("2")).rebuilt


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\0" * 4096])
def test_a_corrupt_file_is_built_anew(root: Root, write_entry: WriteEntry, file: Path, damage: bytes) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())
    file.write_bytes(damage)
    assert not index.is_current(file, catalogue.tree_state(root.entries), "1")
    assert index.update(file, root.entries, sources()).rebuilt
    assert len(ids(file)) == 1


def test_damage_in_the_middle_is_found_and_mended(root: Root, write_entry: WriteEntry, file: Path) -> None:
    for number in range(30):
        write_entry(root.entries, f"kernel/rmsnorm/v{number}")
    settle(root)
    index.update(file, root.entries, sources())
    whole = file.read_bytes()
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        current = index.is_current(file, catalogue.tree_state(root.entries), "1")
        if not current or not index.text_is_whole(file):
            index.update(file, root.entries, sources(), rebuild=current)
        assert len(ids(file)) == 30
        assert index.text_is_whole(file)


@pytest.mark.parametrize("lost", ["entry_text_data", "entry_dtype", "entry_text"])
def test_damage_that_shows_only_while_writing_is_mended(
    root: Root, write_entry: WriteEntry, file: Path, lost: str
) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"DROP TABLE {lost}")
        connection.commit()
    write_entry(root.entries, kernel="x = 2\n")
    assert index.update(file, root.entries, sources()).rebuilt
    assert index.text_is_whole(file)


def test_an_sqlite_without_full_text_is_one_clear_line(root: Root, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CREATE_TEXT", catalogue.CREATE_TEXT.replace("fts5(", "fts99("))
    with pytest.raises(StoreError, match="cannot write"):
        index.update(file, root.entries, sources())
    assert not file.exists()


def test_a_locked_catalogue_is_one_clear_line(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(IndexStaleError, match="is locked by another process"):
            CatalogueWriter(file, fresh=False, wait_s=0.1).__enter__()
        holder.execute("ROLLBACK")


def test_a_reader_goes_on_while_the_writer_writes(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())
    with CatalogueWriter(file, fresh=False) as writer:
        writer.remove([1])
        assert len(ids(file)) == 1
    assert ids(file) == []


def test_searching_while_indexing_never_fails(root: Root, write_entry: WriteEntry, file: Path) -> None:
    for number in range(8):
        write_entry(root.entries, f"kernel/rmsnorm/v{number}")
    index.update(file, root.entries, sources())
    stop = threading.Event()
    seen: list[int] = []
    errors: list[Exception] = []

    def search() -> None:
        while not stop.is_set():
            try:
                seen.append(len(rows(file, "SELECT rowid FROM entry_text WHERE entry_text MATCH 'norm'")))
            except Exception as error:  # noqa: BLE001 - any error at all is the finding
                errors.append(error)
                return

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(12):
        write_entry(root.entries, f"kernel/rmsnorm/v{number % 8}", kernel=f"x = {number}\n")
        index.update(file, root.entries, sources())
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(seen) == {8}


def test_a_failed_build_leaves_the_old_catalogue(root: Root, write_entry: WriteEntry, file: Path) -> None:
    write_entry(root.entries)
    index.update(file, root.entries, sources())

    def fails(stored: StoredEntry) -> Row:
        raise StoreError("no")

    with pytest.raises(StoreError):
        index.update(file, root.entries, index.Sources(fails, "1", lambda: ()), rebuild=True)
    assert len(ids(file)) == 1
    assert sorted(each.name for each in file.parent.glob("*.new*")) == []


def test_a_folder_in_the_catalogues_place_is_one_clear_line(root: Root, file: Path) -> None:
    file.mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        index.update(file, root.entries, sources())


def test_progress_is_told(root: Root, write_entry: WriteEntry, file: Path) -> None:
    for number in range(3):
        write_entry(root.entries, f"kernel/rmsnorm/v{number}")
    told: list[tuple[int, int]] = []
    index.update(file, root.entries, sources(), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_store_has_a_catalogue(root: Root, file: Path) -> None:
    assert index.update(file, root.entries, sources()).total == 0
    assert index.is_current(file, catalogue.tree_state(root.entries), "1")


def test_importing_the_indexer_costs_no_database_library() -> None:
    import subprocess

    code = "import sys, kb.store.index; print([m for m in ('sqlmodel', 'pydantic', 'git') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
