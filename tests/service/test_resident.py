"""A knowledge base that stays open sees every change at the next question, whoever makes it and however fast."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kb import catalogue
from kb.config import Root
from kb.errors import EntryNotFoundError
from kb.retrieval import browse
from kb.service import signals, watching
from kb.service.resident import Resident
from kb.service.searching import Filters
from kb.service.watching import Tree

WriteEntry = Callable[..., Path]
ROW = "kernel/rmsnorm/row-per-cta"


@pytest.fixture(params=["signals", "times"])
def tree(request: pytest.FixtureRequest, root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return what watches a tree of one entry: by signals where the system has them, and by times alone."""
    if request.param == "times":
        monkeypatch.setattr(sys, "platform", "elsewhere")
    write_entry(root.entries)
    return Tree(root.entries)


@pytest.fixture
def resident(root: Root, write_entry: WriteEntry) -> Iterator[Resident]:
    write_entry(root.entries)
    made = Resident(root)
    yield made
    made.close()


def test_a_tree_says_what_listing_it_would_say(tree: Tree, root: Root) -> None:
    for pause in (0.0, 0.05, 0.0):
        time.sleep(pause)
        assert tree.state() == catalogue.tree_state(root.entries)
    tree.close()


def test_every_kind_of_change_is_seen(tree: Tree, root: Root, write_entry: WriteEntry) -> None:
    folder = root.entries / ROW
    kernel = folder / "kernel.py"

    def rewrite_in_place() -> None:
        with kernel.open("r+b") as file:
            file.write(b"#")

    changes: list[Callable[[], object]] = [
        lambda: kernel.write_text("def run(x):\n    return x * 1\n", encoding="utf-8"),
        rewrite_in_place,
        lambda: os.utime(kernel, ns=(1, 1)),
        lambda: (folder / "more.py").write_text("", encoding="utf-8"),
        lambda: (folder / "more.py").rename(folder / "other.py"),
        lambda: (folder / "other.py").unlink(),
        lambda: write_entry(root.entries, "technique/fusion/new"),
        lambda: (root.entries / "technique/fusion/new/README.md").write_text("# New\n", encoding="utf-8"),
        lambda: folder.rename(folder.with_name("renamed")),
        lambda: (folder.with_name("renamed") / "kernel.py").write_text("x", encoding="utf-8"),
    ]
    for number, change in enumerate(changes):
        tree.state()
        time.sleep(0.05)
        before = tree.state()
        change()
        now = tree.state()
        assert now != before, number
        assert now == catalogue.tree_state(root.entries), number
    tree.close()


def test_what_is_not_signalled_is_seen_all_the_same(
    root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_TRUSTED_S", 0.0)
    monkeypatch.setattr(signals.Signals, "changed", lambda _: False)
    write_entry(root.entries)
    tree = Tree(root.entries)
    time.sleep(0.05)
    before = tree.state()
    (root.entries / ROW / "kernel.py").write_text("def run(x):\n    return x * 2\n", encoding="utf-8")
    assert tree.state() != before
    tree.close()


def test_too_many_folders_are_not_watched(root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MOST_FOLDERS", 2)
    write_entry(root.entries)
    watch = signals.Signals()
    assert not watch.watch([str(root.entries), str(root.path), str(root.entries / ROW)])
    assert watch.changed()


def test_a_question_sees_what_was_written_before_it(resident: Resident, root: Root, write_entry: WriteEntry) -> None:
    for number in range(8):
        write_entry(root.entries, f"kernel/rmsnorm/new-{number}")
        answer = resident.search("rmsnorm", filters=Filters(), limit=50)
        assert f"kernel/rmsnorm/new-{number}" in [hit.id for hit in answer.hits]


def test_the_state_stays_and_changes_with_the_files(resident: Resident, root: Root, write_entry: WriteEntry) -> None:
    resident.state()
    time.sleep(0.1)
    assert resident.state() == resident.state()
    before = resident.state()
    write_entry(root.entries, "kernel/softmax/online-row")
    assert resident.state() != before


def test_many_threads_ask_while_entries_come_and_go(resident: Resident, root: Root, write_entry: WriteEntry) -> None:
    failed: list[Exception] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                assert resident.search("rmsnorm", filters=Filters(), limit=5).hits
            except Exception as error:  # noqa: BLE001 - shown below
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(10):
        write_entry(root.entries, f"kernel/rmsnorm/new-{number}")
        time.sleep(0.02)
    over.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_missing_entry_is_no_reason_to_rebuild(resident: Resident, root: Root) -> None:
    resident.state()
    built = (root.path / ".kb" / "catalogue.db").stat().st_ino
    with pytest.raises(EntryNotFoundError):
        resident.ask(lambda connection: browse.get(connection, "kernel/rmsnorm/none"))
    assert (root.path / ".kb" / "catalogue.db").stat().st_ino == built


def test_meaning_is_off_until_it_is_asked_for(resident: Resident) -> None:
    assert resident.meaning == "off"
    assert not resident.wait(0.1)
