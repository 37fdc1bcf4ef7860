"""Locks between processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kb.errors import StoreError
from kb.store import locks
from kb.store.locks import LockBusyError, locked


def test_an_exclusive_lock_keeps_everybody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        for shared in (False, True):
            with (
                pytest.raises(LockBusyError, match="held by another process"),
                locked(path, shared=shared, wait_s=0.05),
            ):
                pass
    with locked(path, wait_s=0):
        pass


def test_shared_locks_let_each_other_in(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, shared=True), locked(path, shared=True, wait_s=0):
        pass


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from kb.store.locks import locked\n"
    code += "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockBusyError), locked(path, wait_s=0.05):
            pass
        os.kill(holder.pid, signal.SIGKILL)
    with locked(path, wait_s=5):
        pass


def test_a_lock_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot make the lock file"), locked(tmp_path / "missing" / "lock"):
        pass


def test_a_file_system_without_locks_falls_back_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, *, shared: bool) -> bool:
        import errno

        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(locks, "_try_system_lock", unsupported)
    path = tmp_path / "lock"
    with locked(path):
        assert (tmp_path / "lock.held").exists()
        with pytest.raises(LockBusyError), locked(path, wait_s=0.05):
            pass
        assert (tmp_path / "lock.held").exists()
    assert not (tmp_path / "lock.held").exists()


def test_a_lock_file_left_behind_grows_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, *, shared: bool) -> bool:
        import errno

        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(locks, "_try_system_lock", unsupported)
    held = tmp_path / "lock.held"
    held.write_text("")
    os.utime(held, (time.time() - 3600, time.time() - 3600))
    with locked(tmp_path / "lock", wait_s=1):
        pass
