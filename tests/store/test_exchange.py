"""Two folders swap their names, or nothing happens."""

import os
import sys
from pathlib import Path

import pytest

from kb.store import exchange as module
from kb.store.exchange import exchange


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="swaps names on Linux and macOS alone")
def test_names_are_swapped_whatever_the_folders_hold(tmp_path: Path) -> None:
    one, other = tmp_path / "one ü", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "file").write_text("x", encoding="utf-8")
    if not exchange(one, other):
        pytest.skip("this file system cannot swap names")
    assert (list(one.iterdir()), [path.name for path in other.iterdir()]) == ([], ["file"])


def test_what_is_missing_is_an_error_and_what_cannot_be_done_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    if exchange(tmp_path / "one", tmp_path / "one"):
        with pytest.raises(FileNotFoundError):
            exchange(tmp_path / "one", tmp_path / "none")
    monkeypatch.setattr(module, "_library", lambda: None)
    assert not exchange(tmp_path / "one", tmp_path / "none")
    assert os.listdir(tmp_path) == ["one"]  # noqa: PTH208 - names alone
