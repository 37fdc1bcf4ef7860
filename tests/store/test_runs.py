"""Journals of runs: what was appended is there after a kill, and a torn last line is not."""

from pathlib import Path

import pytest

from kb.errors import StoreError
from kb.store import runs


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    run = runs.begin(tmp_path, {"plan": ["a", "b"]})
    run.append({"began": "a"})
    run.append({"done": "a", "verdict": None})
    (again,) = runs.all_runs(tmp_path)
    assert again.id == run.id
    assert again.head == {"plan": ["a", "b"]}
    assert again.lines[1:] == [{"began": "a"}, {"done": "a", "verdict": None}]
    assert not again.ended
    run.append({"ended": True})
    assert next(runs.all_runs(tmp_path)).ended


@pytest.mark.parametrize("torn", [b'{"done": "a", "ver', b'{"done": "a"}', b"\xff\xfe\n", b"[]\n", b"\n"])
def test_a_torn_line_is_dropped_and_the_run_goes_on(tmp_path: Path, torn: bytes) -> None:
    run = runs.begin(tmp_path, {"plan": []})
    run.append({"began": "a"})
    with run.file.open("ab") as stream:
        stream.write(torn)
    again = runs.read(run.file)
    assert again is not None
    assert again.lines == [{"plan": []}, {"began": "a"}]
    again.append({"done": "a"})
    last = runs.read(run.file)
    assert last is not None
    assert last.lines[-1] == {"done": "a"}
    assert len(last.lines) == 3


def test_a_journal_without_a_whole_head_is_none(tmp_path: Path) -> None:
    run = runs.begin(tmp_path, {"plan": []})
    run.file.write_bytes(b'{"pl')
    assert runs.read(run.file) is None
    assert list(runs.all_runs(tmp_path)) == []
    assert runs.read(tmp_path / "nowhere.jsonl") is None


def test_newest_first_and_old_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / runs.FOLDER
    folder.mkdir()
    for number in range(runs.KEPT + 5):
        (folder / f"20260101T0000{number:02}Z-0000.jsonl").write_text("{}\n", encoding="utf-8")
    (folder / "notes.jsonl").write_text("{}\n", encoding="utf-8")
    run = runs.begin(tmp_path, {})
    found = [one.id for one in runs.all_runs(tmp_path)]
    assert found[0] == run.id
    assert len(found) <= runs.KEPT
    assert "notes" not in found


def test_a_folder_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / runs.FOLDER).write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot write"):
        runs.begin(tmp_path, {})
