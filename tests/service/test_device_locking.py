"""One judge at a time on a device: whoever waits learns for whom, and a dead holder holds nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kb.config import cache_folder
from kb.errors import ConfigError
from kb.service.device_locking import device_lock
from kb.store.locks import LockBusyError

HOLDER = """
import sys
from kb.service.device_locking import device_lock
with device_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(device: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a device."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


def test_whoever_waits_learns_for_whom_and_then_goes_on() -> None:
    said: list[str] = []
    with held("cpu") as other:
        end = other.stdin
        assert end is not None

        def told(words: str) -> None:
            said.append(words)
            end.close()

        with device_lock("cpu", wait_s=60, waiting=told):
            pass
    assert said == [said[0]]
    assert said[0].startswith(f"process {os.getpid()} waits for process {other.pid} (-c cpu, since ")
    assert said[0].endswith("which judges on cpu")


def test_whoever_does_not_wait_learns_who_is_there() -> None:
    with held("cuda:0") as other:
        with pytest.raises(LockBusyError, match=f"another run judges on cuda:0: process {other.pid} "):
            device_lock("cuda:0").__enter__()
        with device_lock("cuda:1"), device_lock("cpu"):
            pass


def test_what_a_killed_process_held_is_free_at_once() -> None:
    with held("cpu") as other:
        other.send_signal(signal.SIGKILL)
        other.wait(timeout=30)
        with device_lock("cpu"):
            pass


def test_words_that_are_none_do_not_keep_anybody_from_telling(tmp_path: Path) -> None:
    for words in ("", "[", '{"pid": "x", "command": 1, "since": 2}', '{"pid": 1}', "null"):
        with device_lock("cpu"):
            (cache_folder() / "locks" / "judge-cpu.holder").write_text(words, encoding="utf-8")
            with pytest.raises(LockBusyError, match="judges on cpu: another process"):
                device_lock("cpu").__enter__()


def test_one_gpu_has_one_lock_whatever_a_process_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with device_lock("cuda:1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        with pytest.raises(LockBusyError):
            device_lock("cuda:0").__enter__()
        with device_lock("cuda:1"):
            pass


def test_no_place_for_a_lock_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    monkeypatch.setenv("KB_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot make"):
        device_lock("cpu").__enter__()
