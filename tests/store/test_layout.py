"""Ids and folders: what is an id, and what a look at the folders tells."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.catalogue import tree_state
from kb.config import Root
from kb.errors import EntryFormatError
from kb.store import layout

WriteEntry = Callable[..., Path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel",
        "kernel/rmsnorm",
        "kernel/rmsnorm/a/b",
        "/kernel/rmsnorm/a",
        "kernel/../a",
        "kernel/rmsnorm/..",
        "../kernel/rmsnorm",
        "kernel//a",
        "kernel/rmsnorm/",
        "kernel/RMSNorm/a",
        "kernel/rmsnorm/A",
        "kernel/rmsnorm/a_b",
        "kernel/rmsnorm/a\n",
        "kernel/rmsnorm/a\0b",
        "kernel/rmsnorm/con",
        "kernel/nul/a",
        "kernel/com1/a",
        "kernel\\rmsnorm\\a",
        "C:/rmsnorm/a",
        "solution/rmsnorm/a",
        "kernel/rmsnorm/" + "a" * 300,
        "kernel/rmsnorm/ä",
    ],
)
def test_a_bad_id_is_refused_in_one_printable_line(text: str) -> None:
    with pytest.raises(EntryFormatError) as caught:
        layout.parse_id(text)
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 450


@given(st.text())
def test_any_text_is_an_id_inside_entries_or_refused(text: str) -> None:
    entries = Path("/base/entries")
    try:
        folder = layout.folder_of(entries, text)
    except EntryFormatError:
        return
    assert folder.relative_to(entries).as_posix() == text
    assert len(folder.relative_to(entries).parts) == 3


def test_the_last_three_parts_of_a_path_give_the_id(tmp_path: Path) -> None:
    assert layout.guess_id(tmp_path / "kernel" / "rmsnorm" / "a") == "kernel/rmsnorm/a"
    assert layout.guess_id(tmp_path / "x" / "rmsnorm" / "a") is None
    assert layout.guess_id(Path("a")) is None


@pytest.mark.parametrize(
    "name", ["kernel.py", "src/kernel.cu", "LICENSE", "NOTICE.txt", "records/2026-01-01-sm_90-0.json"]
)
def test_plain_names_are_taken(name: str) -> None:
    assert layout.file_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "../kernel.py",
        "a b.py",
        "aux.py",
        "kernel.so",
        "x",
        "nested/entry.toml",
        "records/x.py",
        "a/b/c/d/e.py",
        "k.py\n",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    assert layout.file_fault(name)


def test_prose_and_evidence_are_no_candidates() -> None:
    names = ["kernel.py", "entry.toml", "README.md", "LICENSE", "records/a.json", "config.json"]
    assert [name for name in names if layout.is_candidate(name)] == ["kernel.py", "config.json"]


def test_a_survey_has_the_same_state_as_the_catalogue_computes(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    survey = layout.survey(root.entries)
    assert survey.state == tree_state(root.entries)
    assert [each.id for each in survey.found] == ["kernel/rmsnorm/row-per-cta"]
    assert survey.strays == ()


def test_a_survey_names_what_lies_in_the_wrong_place(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    (root.entries / "keyring.toml").write_text("")
    (root.entries / "notes.txt").write_text("")
    (root.entries / "solution" / "a" / "b").mkdir(parents=True)
    (root.entries / "solution" / "a" / "b" / "entry.toml").write_text("")
    (root.entries / "kernel" / "rmsnorm" / "link").symlink_to(root.path)
    strays = dict(layout.survey(root.entries).strays)
    assert set(strays) == {"notes.txt", "solution/a/b/entry.toml", "kernel/rmsnorm/link"}
    assert "unknown kind 'solution'" in strays["solution/a/b/entry.toml"]


def test_two_names_for_the_same_id_are_a_duplicate(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, "technique/split-k/a")
    write_entry(root.entries, "technique/split_k/a")
    faults = [each.fault for each in layout.survey(root.entries).found]
    assert faults[0] is None
    assert faults[1] == "duplicate id: technique/split_k/a and technique/split-k/a are the same name"


def test_a_folder_whose_name_is_no_id_takes_no_place(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, "technique/norm/Rows")
    write_entry(root.entries, "technique/norm/rows")
    faults = {each.id: each.fault for each in layout.survey(root.entries).found}
    assert faults["technique/norm/rows"] is None
    assert "lower case" in str(faults["technique/norm/Rows"])
