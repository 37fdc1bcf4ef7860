"""Adding: nothing acknowledged is lost, nothing changes under a version that is taken."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import ConfigError, EntryChangedError, EntryFormatError, EntryNotFoundError, KbError
from kb.service.adding import add
from kb.service.indexing import update
from kb.store.layout import survey

WriteEntry = Callable[..., Path]
ID = "kernel/rmsnorm/row-per-cta"


@pytest.fixture
def draft(tmp_path: Path, write_entry: WriteEntry) -> Callable[..., Path]:
    """Return a function that writes an entry outside of the knowledge base."""
    return lambda **changes: write_entry(tmp_path / "draft", ID, **changes)


def kernel(root: Root, entry_id: str = ID) -> str:
    return (root.entries / entry_id / "kernel.py").read_text()


def test_an_entry_is_added_under_the_id_its_path_spells(root: Root, draft: Callable[..., Path]) -> None:
    added = add(draft(), None, root)
    assert (added.reference, added.state) == (f"{ID}@1", "added")
    assert update(root).report is not None
    assert sorted(each.name for each in (root.entries / ID).iterdir()) == ["README.md", "entry.toml", "kernel.py"]


def test_an_id_may_be_given(root: Root, draft: Callable[..., Path]) -> None:
    assert add(draft(), "kernel/rmsnorm/other", root).id == "kernel/rmsnorm/other"


def test_an_id_that_cannot_be_told_from_a_taken_one_is_refused(
    root: Root, write_entry: WriteEntry, tmp_path: Path
) -> None:
    taken = "technique/split_k/few-rows"
    draft = write_entry(tmp_path / "draft", taken)
    add(draft, None, root)
    with pytest.raises(EntryFormatError, match=f"{taken} has the same name") as caught:
        add(draft, "technique/split-k/few-rows", root)
    assert taken in str(caught.value.hint)
    assert [each.id for each in survey(root.entries).found if each.fault is None] == [taken]


def test_a_path_that_spells_no_id_asks_for_one(root: Root, draft: Callable[..., Path], tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    draft().rename(plain)
    with pytest.raises(EntryFormatError, match="the id is not known") as caught:
        add(plain, None, root)
    assert "--id" in str(caught.value.hint)


def test_the_same_content_again_changes_nothing_and_says_so(root: Root, draft: Callable[..., Path]) -> None:
    add(draft(), None, root)
    before = (root.entries / ID).stat().st_ino
    assert add(draft(), None, root).state == "unchanged"
    assert add(root.entries / ID, None, root).state == "unchanged"
    assert (root.entries / ID).stat().st_ino == before


def test_a_change_of_what_runs_needs_a_version(root: Root, draft: Callable[..., Path]) -> None:
    add(draft(), None, root)
    with pytest.raises(EntryChangedError) as caught:
        add(draft(kernel="x = 2\n"), None, root)
    assert caught.value.hint == "set version = 2 in entry.toml"
    assert kernel(root) == "def run(x):\n    return x\n"
    assert add(draft(kernel="x = 2\n", version=2), None, root).state == "updated"
    assert kernel(root) == "x = 2\n"
    with pytest.raises(EntryChangedError, match="version 2 is there already"):
        add(draft(version=1), None, root)


def test_prose_may_change_under_the_same_version(root: Root, draft: Callable[..., Path]) -> None:
    add(draft(), None, root)
    assert add(draft(readme="# Better words\n"), None, root).state == "updated"


def test_records_that_are_there_are_kept_and_never_changed(root: Root, draft: Callable[..., Path]) -> None:
    add(draft(), None, root)
    record = root.entries / ID / "records" / "2026-01-01-sm_90-0123456789ab.json"
    record.parent.mkdir()
    record.write_text("{}")
    add(draft(version=2, kernel="x = 2\n"), None, root)
    assert record.read_text() == "{}"
    folder = draft(version=2, kernel="x = 2\n")
    (folder / "records").mkdir()
    (folder / "records" / record.name).write_text('{"changed": 1}')
    with pytest.raises(EntryChangedError, match="may not change"):
        add(folder, None, root)
    (folder / "records" / record.name).write_text("{")
    with pytest.raises(EntryFormatError, match="expected JSON"):
        add(folder, None, root)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "entry.toml").write_text("version ="), "entry.toml: expected TOML"),
        (lambda folder: (folder / "README.md").write_bytes(b"a" * (10 << 20)), "README.md: expected at most"),
        (lambda folder: (folder / "kernel.py").write_bytes(b"\0"), "binary file"),
        (lambda folder: (folder / "kernel.py").write_bytes(b"\xff"), "expected UTF-8"),
        (lambda folder: (folder / "out.py").symlink_to("/etc/hostname"), "symbolic link"),
        (lambda folder: (folder / "entry.toml").unlink(), "entry.toml: the file is missing"),
    ],
)
def test_a_hostile_folder_is_one_clear_line_and_writes_nothing(
    root: Root, draft: Callable[..., Path], spoil: Callable[[Path], object], said: str
) -> None:
    folder = draft()
    spoil(folder)
    with pytest.raises(EntryFormatError) as caught:
        add(folder, None, root)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert list(root.entries.iterdir()) == []


@pytest.mark.parametrize("entry_id", ["kernel/../../etc", "/kernel/a/b", "solution/a/b", "kernel/a", "kernel/nul/a"])
def test_a_hostile_id_is_refused(root: Root, draft: Callable[..., Path], entry_id: str) -> None:
    with pytest.raises(EntryFormatError):
        add(draft(), entry_id, root)


def test_the_packaged_entries_are_never_written(root: Root, draft: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="never written"):
        add(draft(), None, Root(root.path, packaged=True))


def test_a_missing_folder_is_one_clear_line(root: Root, tmp_path: Path) -> None:
    with pytest.raises(EntryNotFoundError, match="no folder"):
        add(tmp_path / "nowhere", None, root)


def test_a_broken_entry_is_not_overwritten(root: Root, draft: Callable[..., Path]) -> None:
    add(draft(), None, root)
    (root.entries / ID / "entry.toml").write_text("version =")
    with pytest.raises(EntryFormatError, match=r"entry\.toml"):
        add(draft(version=2), None, root)
    assert (root.entries / ID / "entry.toml").read_text() == "version ="


ADDER = """
import sys
from pathlib import Path
from kb.config import Root
from kb.service.adding import add
draft, base, name = Path(sys.argv[1]), Root(Path(sys.argv[2])), sys.argv[3]
for number in range(int(sys.argv[4])):
    (draft / "kernel.py").write_text(f"x = {number}\\n")
    print(add(draft, f"kernel/rmsnorm/{name}-{number}", base).id, flush=True)
"""


def start(draft: Path, root: Root, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", ADDER, str(draft), str(root.path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_adding_at_once_lose_nothing(root: Root, tmp_path: Path, write_entry: WriteEntry) -> None:
    workers = [start(write_entry(tmp_path / name, ID), root, name, 20) for name in ("a", "b")]
    acknowledged = [line for worker in workers for line in worker.communicate()[0].split()]
    assert len(acknowledged) == 40
    report = update(root).report
    assert report is not None
    assert (report.total, report.problems) == (40, ())


def test_two_processes_changing_one_entry_never_overwrite_each_other(
    root: Root, tmp_path: Path, write_entry: WriteEntry, draft: Callable[..., Path]
) -> None:
    add(draft(), None, root)
    results: list[str] = []
    for number in range(2):
        folder = write_entry(tmp_path / str(number), ID, version=2, kernel=f"x = {number}\n")
        try:
            results.append(add(folder, None, root).state)
        except KbError as error:
            results.append(type(error).__name__)
    assert results == ["updated", "EntryChangedError"]
    assert kernel(root) == "x = 0\n"
