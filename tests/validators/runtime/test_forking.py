"""Workers that a nursery forks: as good as fresh processes, and the judge survives the nursery's end."""

import json
import os
import platform
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.validators.runtime import processes
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.starting import prepare
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]

REPORTS = b"""
import ctypes, gc, json, os, random, sys, tempfile, threading, types
import numpy, torch

def importable():
    known = set(sys.modules)
    try:
        import kb.validators.operators
    except Exception as error:
        return type(error).__name__
    finally:
        for one in set(sys.modules) - known:
            del sys.modules[one]

def run():
    modules = [one.__name__ for one in gc.get_objects() if isinstance(one, types.ModuleType)]
    functions = [one.__module__ or "" for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    empty = torch.empty(1 << 14, dtype=torch.uint8)
    raise RuntimeError(json.dumps({
        "names": sorted({one for one in (*modules, *functions) if one.startswith("kb.")}),
        "known": sorted(one for one in sys.modules if one.split(".")[0] == "kb"),
        "home": os.environ["HOME"], "temporary": tempfile.gettempdir(), "variables": sorted(os.environ),
        "seen": (ctypes.c_char_p.in_dll(ctypes.CDLL(None), "environ") or True) and os.getenv("HOME"),
        "fresh": int(empty.bincount().argmax()), "argv": sys.argv[0], "folder": os.getcwd(),
        "threads": len(os.listdir("/proc/self/task")), "leader": os.getsid(0) == os.getpid() or os.getsid(0) == 0,
        "dice": [random.random(), float(numpy.random.rand())], "importable": importable(),
        "path": [one for one in sys.path if "kb" in one and os.path.isabs(one)],
        "handlers": [str(__import__("signal").getsignal(17)), __import__("signal").set_wakeup_fd(-1)],
    }))
"""


@pytest.fixture
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(1 << 20)
    yield made
    made.close()


def start(source: bytes, place: Workplace, arena: Arena) -> Worker:
    worker = Worker(source, place=place, arena=arena, limits=Limits(), triton=False)
    worker.wait_ready(limit_s=60)
    return worker


def report(worker: Worker) -> dict[str, Any]:
    worker.ask({"op": "load"}, limit_s=20)
    found: dict[str, Any] = json.loads(
        worker.ask({"op": "call", "arguments": [], "offset": 0}, limit_s=20)["error"]["message"]
    )
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def nursery_of(worker: Worker) -> int:
    return parent(worker.pids()[0])


def test_a_forked_worker_has_nothing_that_a_fresh_one_would_not_have(place: Workplace, arena: Arena) -> None:
    one, other = start(REPORTS, place, arena), start(REPORTS, place, arena)
    try:
        first, second = report(one), report(other)
        assert nursery_of(one) == nursery_of(other) != os.getpid()
        assert not [name for name in first["names"] if name.startswith("kb.validators.operators")]
        assert not [name for name in first["names"] if name.endswith(("reference", "judge", "expectation", "contents"))]
        assert first["known"] == []
        assert first["path"] == []
        assert first["importable"] in {"ModuleNotFoundError", "PermissionError"}, "also beside an editable install"
        for found, worker in ((first, one), (second, other)):
            assert found["home"] == found["temporary"] == found["seen"] == str(worker.cache)
            assert found["folder"] == str(worker.folder)
            assert found["argv"] == "-c"
            assert found["leader"]
        assert first["variables"] == second["variables"]
        assert set(first["variables"]) <= set(worker_variables())
        assert first["fresh"] != 0
        assert first["handlers"] == ["0", -1] or first["handlers"] == ["Handlers.SIG_DFL", -1]
        assert all(a != b for a, b in zip(first["dice"], second["dice"], strict=True))
    finally:
        one.end()
        other.end()


def worker_variables() -> list[str]:
    """Name all variables that a worker may have."""
    own = ["HOME", "TMPDIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "TRITON_INTERPRET", "MALLOC_PERTURB_", "LC_ALL"]
    kept = ["PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"]
    torchs = ["TORCHINDUCTOR_CACHE_DIR", "TRITON_HOME"]
    return [*own, *kept, *torchs, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"]


def test_the_nursery_has_one_thread_and_no_descriptor_of_its_workers(place: Workplace, arena: Arena) -> None:
    worker = start(b"def run(): ...\n", place, arena)
    try:
        nursery = nursery_of(worker)
        before = len(list(Path(f"/proc/{nursery}/fd").iterdir()))
        assert len(list(Path(f"/proc/{nursery}/task").iterdir())) == 1
        assert not [one for one in Path(f"/proc/{nursery}/fd").iterdir() if "kb-arena" in str(one.readlink())]
        more = start(b"def run(): ...\n", place, arena)
        more.end()
        more.end()
        deadline = time.monotonic() + 5
        while len(list(Path(f"/proc/{nursery}/fd").iterdir())) > before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(list(Path(f"/proc/{nursery}/fd").iterdir())) == before
        assert processes.tree(nursery)[1:] == worker.pids()
    finally:
        worker.end()


@pytest.mark.parametrize(
    ("end", "reason", "detail"),
    [("os._exit(0)", "exited", "code 0"), ("os._exit(7)", "crashed", "code"), ("os.abort()", "crashed", "SIG")],
)
def test_how_a_worker_ended_is_known(end: str, reason: str, detail: str, place: Workplace, arena: Arena) -> None:
    worker = start(f"import os\n{end}\n".encode(), place, arena)
    try:
        with pytest.raises(WorkerEndedError) as caught:
            worker.ask({"op": "load"}, limit_s=20)
        assert caught.value.reason == reason
        assert detail in caught.value.detail
    finally:
        worker.end()


def test_a_nursery_that_is_killed_takes_its_workers_along_and_the_next_worker_gets_another_one(
    place: Workplace, arena: Arena
) -> None:
    worker = start(b"import time\ntime.sleep(60)\n", place, arena)
    pids, nursery = worker.pids(), nursery_of(worker)
    try:
        os.kill(nursery, signal.SIGKILL)
        with pytest.raises(JudgeError, match="nursery"):
            worker.ask({"op": "load"}, limit_s=20)
        deadline = time.monotonic() + 5
        while processes.living(pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert processes.living(pids) == []
    finally:
        worker.end()
    prepare()
    again = start(b"def run(): ...\n", place, arena)
    try:
        assert nursery_of(again) != nursery
    finally:
        again.end()
