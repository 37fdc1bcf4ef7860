"""While a candidate is built, compilers may be started and nothing else; afterwards nothing at all."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kb.validators.runtime import workplace
from kb.validators.runtime.watch import BUILD, Watcher

INSIDE = """
import ctypes, json, os, socket, subprocess, sys
from pathlib import Path
from kb.validators.runtime import breakout, sandbox
channel = socket.socket(fileno=int(sys.argv[1]))
folder, cache, canary = (Path(one) for one in sys.argv[2:5])
limits = sandbox.limits_for("cuda:0", memory_bytes=1 << 30)
layers = sandbox.enter(write=[cache], read=[folder], limits=limits, channel=channel, device="cuda")
breakout.verify(layers, canary=canary, judge_pid=int(sys.argv[5]), limits=limits)
def say(**facts):
    channel.send(json.dumps(facts).encode())
    return channel.recv(100)
say(held=layers.verified)
source = cache / "half.c"
source.write_text("int half(int x) { return x / 2; }")
library = cache / "half.so"
command = ["gcc", "-shared", "-o", str(library), str(source)]
built = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(cache)})
answer = ctypes.CDLL(str(library)).half(84) if built.returncode == 0 else built.stderr
program = cache / "own"
program.write_bytes(Path("/bin/true").read_bytes())
def starts(path):
    try:
        return subprocess.run([path], capture_output=True).returncode == 0
    except OSError:
        return False
say(answer=answer, python=not breakout.exec_refused(), own=starts(str(program)), system=starts("/usr/bin/env"))
try:
    after = subprocess.run(["gcc", "--version"], capture_output=True).returncode
except OSError:
    after = "refused"
say(after=after)
"""


@pytest.fixture
def spoken(tmp_path: Path) -> list[dict[str, object]]:
    """Run ``INSIDE`` and answer as the judge does: open the build, then close it."""
    folders = [tmp_path / name for name in ("candidate", "cache", "private")]
    for one in folders:
        one.mkdir()
    (folders[2] / "canary").write_text("x", encoding="ascii")
    folders[2].chmod(0o700)
    for parent in [tmp_path, *tmp_path.parents][:4]:  # under several workers there is one folder more
        parent.chmod(parent.stat().st_mode | 0o011)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = [str(theirs.fileno()), str(folders[0]), str(folders[1]), str(folders[2] / "canary")]
        process = subprocess.Popen(
            [sys.executable, "-c", INSIDE, *arguments, str(os.getpid())], pass_fds=(theirs.fileno(),)
        )
        theirs.close()
        mark, descriptors, _, _ = socket.recv_fds(ours, 1, 4)
        if mark == b"N":
            pytest.skip("this kernel has no user notification")
        watcher = Watcher(descriptors[0])
        found = []
        for allowed in (BUILD, frozenset[str](), frozenset[str]()):
            found.append(json.loads(ours.recv(1 << 16)))
            watcher.allow(allowed)
            ours.send(b"on")
        process.wait(timeout=30)
        watcher.close()
        return found


def test_compilers_start_while_building_nothing_else_does_and_later_nothing_starts(
    spoken: list[dict[str, object]],
) -> None:
    assert spoken[0]["held"] == dict.fromkeys(spoken[0]["held"], True)  # type: ignore[call-overload]
    assert spoken[1] == {"answer": 42, "python": False, "own": False, "system": False}
    assert spoken[2] == {"after": "refused"}


def test_folders_that_vanish_while_one_looks_are_not_too_much(tmp_path: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(20):
                (tmp_path / f"{number}" / "inner").mkdir(parents=True)
            for number in range(20):
                (tmp_path / f"{number}" / "inner").rmdir()
                (tmp_path / f"{number}").rmdir()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        worst = max(workplace.usage(tmp_path, most_bytes=1 << 30, most_entries=1000)[1] for _ in range(2000))
    finally:
        stop.set()
        thread.join()
    assert worst <= 1000
