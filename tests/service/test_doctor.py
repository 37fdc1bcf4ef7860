"""The doctor finds what is wrong and says what to do, whatever state things are in."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kb import catalogue
from kb.config import Root
from kb.service import doctor
from kb.service.doctor import Examination, examine
from kb.service.indexing import ensure_index

WriteEntry = Callable[..., Path]


def look(root: Root) -> dict[str, Examination]:
    return {each.name: each for each in examine(str(root.path))}


def test_a_healthy_installation_has_no_problem(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    time.sleep(0.03)
    ensure_index(root)
    found = look(root)
    assert [each for each in found.values() if each.state == "problem"] == []
    assert found["full text"].state == "ok"
    assert "1 entries" in found["entries"].found


def test_what_is_not_a_problem_yet_is_a_note_with_a_next_step(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    assert (look(root)["catalogue"].state, look(root)["catalogue"].found) == ("note", "not built yet")
    ensure_index(root)
    write_entry(root.entries, "kernel/rmsnorm/b")
    assert look(root)["catalogue"].found.endswith("older than the files")


def test_a_damaged_catalogue_is_a_problem(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    ensure_index(root).write_bytes(b"garbage" * 1000)
    found = look(root)["catalogue"]
    assert (found.state, found.next_step) == ("problem", "kb index --rebuild")


def test_entries_left_out_are_a_problem(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, facts="x =")
    time.sleep(0.03)
    ensure_index(root)
    assert look(root)["catalogue"].next_step == "kb check"


def test_folders_that_cannot_be_written_are_problems(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path / "file" / "config"))
    found = look(root)
    assert found["cache folder"].next_step == "set KB_CACHE_DIR to a folder that can be written"
    assert found["settings folder"].state == "problem"


def test_bad_settings_and_a_missing_root_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text("x =")
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path))
    found = {each.name: each for each in examine(str(tmp_path / "nowhere"))}
    assert found["settings"].state == "problem"
    assert "no knowledge base" in found["knowledge base"].found


def test_a_missing_git_is_a_problem(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert look(root)["git"].state == "problem"


def test_an_sqlite_without_full_text_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CREATE_TEXT", "CREATE VIRTUAL TABLE t USING fts99(a)")
    assert doctor._sqlite().state == "problem"


def test_an_addition_that_was_cut_off_is_a_problem(root: Root, write_entry: WriteEntry) -> None:
    (root.entries / ".kb" / "stage" / "dead").mkdir(parents=True)
    assert look(root)["entries"].state == "problem"


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_EXTRAS", {"gpu": ("no_such_module", "no.such.module")})
    (only,) = doctor._extras()
    assert (only.state, only.next_step) == ("note", 'pip install "kernel-kb[gpu]"')
