"""The catalogue is found, built, healed and placed where it can be written."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kb import catalogue, config
from kb.config import Root
from kb.errors import ConfigError, IndexStaleError, StoreError
from kb.service.indexing import ensure_index, left_out, update
from kb.store.locks import locked

WriteEntry = Callable[..., Path]


def count(file: Path) -> int:
    with closing(catalogue.open_reader(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM entry").fetchone()[0])


def test_the_first_call_builds_and_the_next_finds_it(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    time.sleep(0.03)
    first = update(root)
    assert first.file == root.path / ".kb" / catalogue.FILE
    assert first.report is not None
    assert update(root).report is None
    assert (root.path / ".kb" / ".gitignore").read_text() == "*\n"


def test_the_document_and_the_lexicon_are_those_of_retrieval(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        assert connection.execute("SELECT count(*) FROM lexicon").fetchone()[0] > 80
        row = connection.execute("SELECT title, facets FROM entry_text").fetchone()
    assert row[0].startswith("RMSNorm")
    assert "bfloat16" in row[1]


def test_what_is_left_out_can_be_asked_for(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    write_entry(root.entries, "kernel/rmsnorm/bad", facts="schema = ")
    problems = left_out(ensure_index(root))
    assert [each.where for each in problems] == ["kernel/rmsnorm/bad"]
    assert problems[0].message.startswith("entries/kernel/rmsnorm/bad/entry.toml: expected TOML")


def test_packaged_entries_are_indexed_in_the_cache(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    file = ensure_index(Root(root.path, packaged=True))
    assert file.is_relative_to(config.cache_folder())
    assert not (root.path / ".kb").exists()


def test_a_knowledge_base_that_cannot_be_written_is_indexed_in_the_cache(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    # A file in the folder's place is in the way of everybody, also of those whom no permission stops.
    (root.path / ".kb").write_text("")
    assert ensure_index(root).is_relative_to(config.cache_folder())


def test_nowhere_to_write_is_one_clear_line(root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (root.path / ".kb").write_text("")
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("KB_CACHE_DIR", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match="cannot write the catalogue") as caught:
        ensure_index(root)
    assert "KB_CACHE_DIR" in str(caught.value.hint)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_current_catalogue_in_a_folder_that_cannot_be_written_is_used(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    time.sleep(0.03)
    file = ensure_index(root)
    (root.path / ".kb").chmod(0o500)
    try:
        assert ensure_index(root) == file
    finally:
        (root.path / ".kb").chmod(0o700)


def test_a_corrupt_catalogue_heals(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    file = ensure_index(root)
    file.write_bytes(b"garbage" * 1000)
    assert count(ensure_index(root)) == 1


def test_an_index_being_built_is_waited_for_and_not_built_twice(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    time.sleep(0.03)
    outcomes: list[bool] = []
    threads = [threading.Thread(target=lambda: outcomes.append(update(root).report is not None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, False, False, True]


def test_an_indexer_that_hangs_is_told_after_a_while(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    (root.path / ".kb").mkdir()
    with locked(root.path / ".kb" / "index.lock"), pytest.raises(StoreError, match="held by another process"):
        update(root, wait_s=0.1)


def test_a_catalogue_held_by_another_program_is_one_clear_line(
    root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry(root.entries)
    file = ensure_index(root)
    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: original(*a, **{**k, "timeout": 0.1}))
    with closing(original(file, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("DELETE FROM meta WHERE key = 'x'")
        with pytest.raises(IndexStaleError, match="locked by another process"):
            ensure_index(root)
        holder.execute("ROLLBACK")
    assert count(ensure_index(root)) == 1


def test_a_folder_without_entries_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(IndexStaleError, match="no folder") as caught:
        ensure_index(Root(tmp_path))
    assert str(caught.value.hint).startswith("kb init")


def test_finding_nothing_to_do_loads_no_heavy_module(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    time.sleep(0.03)
    ensure_index(root)
    code = (
        "import sys; from pathlib import Path; from kb.config import Root\n"
        "from kb.service.indexing import ensure_index\n"
        "ensure_index(Root(Path(sys.argv[1])))\n"
        "print([m for m in ('sqlmodel', 'pydantic', 'git', 'rich', 'typer', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
