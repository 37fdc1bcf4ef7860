"""Folders of a judgement: removed whatever is in them, swept when their judge is gone, and never before."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from kb.validators.runtime import workplace
from kb.validators.runtime.workplace import Workplace


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_living_judges_folders_stay_and_a_dead_ones_go(tmp_path: Path) -> None:
    living = Workplace()
    dead = tmp_path / "kb-judge-dead"
    (dead / "cache-x").mkdir(parents=True)
    (dead / "lock").touch()
    other = tmp_path / "kb-judge-unlocked"
    other.mkdir()
    workplace.sweep()
    assert sorted(tmp_path.iterdir()) == sorted([living.root, other])
    living.close()
    assert not living.root.exists()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").touch()
    (tmp_path / "kb-judge-link").symlink_to(precious)
    inside = tmp_path / "kb-judge-inside"
    inside.mkdir()
    (inside / "lock").touch()
    (inside / "out").symlink_to(precious)
    workplace.sweep()
    assert (precious / "lock").exists()
    assert not inside.exists()


def test_depth_width_and_modes_do_not_stop_removal(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    before = Path.cwd()
    os.chdir(top)
    try:
        for _ in range(3000):
            Path("deeper").mkdir()
            os.chdir("deeper")
            Path("file").touch()
    finally:
        os.chdir(before)
    (top / "closed").mkdir(mode=0)
    assert workplace.usage(top, most_bytes=1 << 40, most_entries=1000)[1] > 1000
    workplace.remove(top)
    assert not top.exists()


def test_a_lock_is_held_for_as_long_as_the_place_is_open() -> None:
    place = Workplace()
    other = os.open(place.root / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    place.close()


def test_files_are_named_links_included(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to("/")
    assert workplace.files_below(tmp_path) == ["a/file", "link"]
    used, entries = workplace.usage(tmp_path, most_bytes=1 << 30, most_entries=99)
    assert used >= 5000
    assert entries == 3
