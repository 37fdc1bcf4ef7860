"""Additions survive crashes and second writers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from kb.config import Root
from kb.errors import EntryFormatError, StoreError
from kb.store import journal

ID = "kernel/rmsnorm/a"


def put(root: Root, body: bytes, entry_id: str = ID) -> None:
    with journal.adding(root.entries) as write:
        write(entry_id, {"kernel.py": body, "src/part.cu": body})


def read(root: Root, entry_id: str = ID) -> set[bytes]:
    folder = root.entries / entry_id
    return {(folder / name).read_bytes() for name in ("kernel.py", "src/part.cu")}


def test_a_new_entry_and_its_replacement_are_put_in_place(root: Root) -> None:
    put(root, b"1")
    assert read(root) == {b"1"}
    put(root, b"2")
    assert read(root) == {b"2"}
    assert not journal.is_unfinished(root.entries)
    assert [each.name for each in root.entries.iterdir() if not each.name.startswith(".")] == ["kernel"]


def test_a_hostile_id_writes_nothing(root: Root) -> None:
    with pytest.raises(EntryFormatError):
        put(root, b"1", "kernel/../../x")
    assert not (root.path.parent / "x").exists()


def test_what_is_staged_without_an_intent_is_cleared(root: Root) -> None:
    put(root, b"1")
    left = root.entries / ".kb" / "stage" / "dead" / "new"
    left.mkdir(parents=True)
    (left / "kernel.py").write_bytes(b"half")
    assert journal.is_unfinished(root.entries)
    assert journal.recover(root.entries) == 0
    assert not journal.is_unfinished(root.entries)
    assert read(root) == {b"1"}


@pytest.mark.parametrize("moved", [False, True])
def test_an_intent_is_completed_from_every_step(root: Root, moved: bool) -> None:
    put(root, b"1")
    work = root.entries / ".kb" / "stage" / "dead"
    (work / "new" / "src").mkdir(parents=True)
    for name in ("kernel.py", "src/part.cu"):
        (work / "new" / name).write_bytes(b"2")
    (work / "intent.json").write_text(json.dumps({"id": ID}))
    if moved:
        (root.entries / ID).rename(work / "old")
    assert journal.recover(root.entries) == 1
    assert read(root) == {b"2"}
    assert not journal.is_unfinished(root.entries)


def test_an_intent_that_was_carried_out_is_only_cleared(root: Root) -> None:
    put(root, b"2")
    work = root.entries / ".kb" / "stage" / "dead"
    (work / "old").mkdir(parents=True)
    (work / "intent.json").write_text(json.dumps({"id": ID}))
    journal.recover(root.entries)
    assert read(root) == {b"2"}


def test_an_intent_that_makes_no_sense_is_kept_and_told(root: Root) -> None:
    work = root.entries / ".kb" / "stage" / "dead"
    work.mkdir(parents=True)
    (work / "intent.json").write_text("{")
    with pytest.raises(StoreError, match="expected an intent") as caught:
        journal.recover(root.entries)
    assert str(work) in str(caught.value.hint)
    assert work.is_dir()


def test_git_ignores_the_journal(root: Root) -> None:
    put(root, b"1")
    assert (root.entries / ".kb" / ".gitignore").read_text() == "*\n"


def test_readers_take_no_lock_where_nobody_added(root: Root) -> None:
    with journal.reading(root.entries):
        pass
    assert not (root.entries / ".kb").exists()


def test_a_writer_waits_for_readers_and_says_so(root: Root) -> None:
    put(root, b"1")
    with (
        journal.reading(root.entries),
        journal.reading(root.entries),
        pytest.raises(StoreError, match="held by another"),
        journal.adding(root.entries, wait_s=0.1),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_clear_line(root: Root) -> None:
    root.entries.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot write below"):
            put(root, b"1")
    finally:
        root.entries.chmod(0o700)


def test_an_addition_that_cannot_be_finished_is_undone(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, b"1")
    original = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(18, "Invalid cross-device link", str(self))
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(StoreError, match="cross-device") as caught:
            put(root, b"2")
    assert "nothing was changed" in str(caught.value.hint)
    assert read(root) == {b"1"}
    assert not journal.is_unfinished(root.entries)


def test_a_file_in_the_way_of_a_topic_is_one_clear_line(root: Root) -> None:
    (root.entries / "kernel").mkdir()
    (root.entries / "kernel" / "rmsnorm").write_text("mine")
    with pytest.raises(StoreError, match="cannot add kernel/rmsnorm/a"):
        put(root, b"1")
    assert not journal.is_unfinished(root.entries)
    assert (root.entries / "kernel" / "rmsnorm").read_text() == "mine"


WORKER = """
import sys
from pathlib import Path
from kb.store import journal
entries = Path(sys.argv[1])
for number in range(10_000):
    body = str(number).encode() * 2000
    with journal.adding(entries) as put:
        put("kernel/rmsnorm/a", {"kernel.py": body, "src/part.cu": body})
    print(number, flush=True)
"""


def test_a_killed_writer_loses_nothing_it_had_acknowledged(root: Root, tmp_path: Path) -> None:
    random = Random(7)  # noqa: S311 - moments of killing, not secrets
    for _ in range(15):
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root.entries)], stdout=subprocess.PIPE, env={**os.environ}
        ) as worker:
            assert worker.stdout is not None
            first = worker.stdout.readline()
            time.sleep(random.uniform(0, 0.08))
            os.kill(worker.pid, signal.SIGKILL)
            acknowledged = int((first + worker.stdout.read()).split()[-1])
        journal.recover(root.entries)
        bodies = read(root)
        assert len(bodies) == 1
        number = len(bodies.pop()) // 2000
        assert number == len(str(acknowledged)) or number == len(str(acknowledged + 1))
        text = (root.entries / ID / "kernel.py").read_bytes()
        assert text in {str(each).encode() * 2000 for each in (acknowledged, acknowledged + 1)}
        assert not journal.is_unfinished(root.entries)
        shutil.rmtree(root.entries / "kernel")


def test_two_writers_at_once_lose_nothing(root: Root) -> None:
    code = (
        "import sys; from pathlib import Path; from kb.store import journal\n"
        "for n in range(25):\n"
        "    with journal.adding(Path(sys.argv[1])) as put:\n"
        "        put(f'kernel/rmsnorm/{sys.argv[2]}-{n}', {'kernel.py': b'x'})\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(root.entries), name]) for name in ("a", "b", "c")]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(list((root.entries / "kernel" / "rmsnorm").iterdir())) == 75
