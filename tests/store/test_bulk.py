"""Many entries go in together or not at all, also when the process is killed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.errors import StoreError
from kb.store import bulk, journal

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from kb.store import bulk
entries = Path(sys.argv[1])
random.seed(11)
for turn in range(30):
    child = os.fork()
    if child == 0:
        with bulk.filing(entries) as filing:
            for number in range(40):
                filing.stage(f"config/gemm/t{turn}-{number}", {"entry.toml": b"x" * 500, "records/a.json": b"{}"})
        os._exit(0)
    time.sleep(random.uniform(0, 0.04))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_kill_leaves_all_of_a_filing_or_nothing(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    entries.mkdir()
    subprocess.run([sys.executable, "-c", KILLER, str(entries)], check=True)
    journal.recover(entries)
    place = entries / "config" / "gemm"
    found: dict[str, int] = {}
    for folder in place.iterdir() if place.is_dir() else ():
        assert sorted(each.name for each in folder.iterdir()) == ["entry.toml", "records"]
        found[folder.name.split("-")[0]] = found.get(folder.name.split("-")[0], 0) + 1
    assert set(found.values()) <= {40}
    assert not journal.is_unfinished(entries)


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), bulk.filing(tmp_path) as filing:  # noqa: PT012 - what is staged before it
        filing.stage("config/gemm/a", {"entry.toml": b""})
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == [".kb"]
    assert not journal.is_unfinished(tmp_path)


def test_a_promise_is_completed_by_whoever_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    old = tmp_path / "config" / "gemm" / "a"
    old.mkdir(parents=True)
    (old / "entry.toml").write_bytes(b"old")
    with monkeypatch.context() as patched:
        patched.setattr(bulk, "roll_forward", stopped)
        with pytest.raises(KeyboardInterrupt), bulk.filing(tmp_path) as filing:  # noqa: PT012 - the end of it raises
            filing.stage("config/gemm/a", {"entry.toml": b"new"})
            filing.stage("config/gemm/b", {"entry.toml": b"new"})
    assert (old / "entry.toml").read_bytes() == b"old"
    assert journal.recover(tmp_path) == 1
    assert [(tmp_path / "config/gemm" / name / "entry.toml").read_bytes() for name in "ab"] == [b"new", b"new"]
    assert not journal.is_unfinished(tmp_path)


def test_an_entry_goes_in_once(tmp_path: Path) -> None:
    with pytest.raises(StoreError), bulk.filing(tmp_path) as filing:  # noqa: PT012 - the second one raises
        for _ in range(2):
            filing.stage("config/gemm/a", {"entry.toml": b""})
    assert not (tmp_path / "config").exists()


def test_nothing_staged_is_nothing_done(tmp_path: Path, write_entry: Callable[..., Path]) -> None:
    del write_entry
    with bulk.filing(tmp_path):
        pass
    assert not journal.is_unfinished(tmp_path)
