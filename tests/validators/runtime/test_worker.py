"""The worker from the judge's side: what gets out of it, what it cannot do, and what it leaves behind."""

import gc
import json
import os
import platform
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb.validators.runtime import processes
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.errors import WorkerEndedError
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

PROBE = Path(__file__).with_name("probe.py").read_bytes()
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]


@pytest.fixture
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()
    assert not made.root.exists()


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(1 << 20)
    yield made
    made.close()


def start(source: bytes, place: Workplace, arena: Arena, **limits: int) -> Worker:
    worker = Worker(source, place=place, arena=arena, limits=Limits(**limits), triton=False)
    worker.wait_ready(limit_s=60)
    return worker


def failure(worker: Worker) -> str:
    """Call a candidate that raises; return the text of what it raised, as it came."""
    worker.ask({"op": "load"}, limit_s=20)
    reply = worker.ask({"op": "call", "arguments": [], "offset": 0}, limit_s=20)
    return str(reply["error"]["message"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system call numbers of x86-64")
def test_nothing_gets_out_and_what_was_tried_is_known(place: Workplace, arena: Arena) -> None:
    worker = start(PROBE, place, arena)
    try:
        found = json.loads(failure(worker).replace("…", ""))
        assert worker.layers["verified"]
        assert all(worker.layers["verified"].values())
        descriptors, environment = found.pop("descriptors"), found.pop("environment")
        uid, capabilities = found.pop("uid"), found.pop("capabilities")
        assert [name for name, error in found.items() if error == 0] == []
        assert found["clone3"] == 38
        # Standard streams, the channel, and the one that lists the folder.
        assert len(descriptors) <= 5
        assert {"HOME", "TMPDIR"} <= set(environment)
        assert not [one for one in environment if one.startswith(("KB_", "PYTEST", "AWS", "SSH", "GITHUB"))]
        assert int(capabilities, 16) in (0, 1 << 2)
        assert uid[0] == uid[1]
        expected = {"vfork", "fork", "io_uring_setup", "process_vm_readv", "pidfd_open", "ptrace", "rt_sigqueueinfo"}
        expected |= {"prctl", "fcntl", "ioctl", "prlimit64", "kill", "tgkill", "unshare", "seccomp", "socket", "execve"}
        if worker.layers["active"]["seccomp"] == "notify":
            assert expected <= set(worker.blocked)
    finally:
        worker.end()


MACHINE = b"""
import ctypes, mmap

def run():
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex(CODE))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
@pytest.mark.parametrize(
    "code",
    ["b814000000cd80c3", "b8270000400f05c3"],  # getpid through int 0x80, and through x32's number
    ids=["int80", "x32"],
)
def test_calls_of_another_architecture_end_the_process(code: str, place: Workplace, arena: Arena) -> None:
    worker = start(b"CODE = '" + code.encode() + b"'\n" + MACHINE, place, arena)
    try:
        with pytest.raises(WorkerEndedError) as caught:
            failure(worker)
        assert caught.value.reason == "forbidden_call"
    finally:
        worker.end()


def test_nothing_is_left_of_a_worker(place: Workplace, arena: Arena) -> None:
    before = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    worker = start(b"import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\n", place, arena)
    worker.ask({"op": "load"}, limit_s=20)
    pids = worker.pids()
    assert processes.resident_bytes(pids) > 1 << 20
    worker.end()
    worker.end()
    del worker
    gc.collect()
    assert [one for one in pids if Path(f"/proc/{one}").exists()] == []
    assert (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) == before


def test_a_flood_of_small_offences_hides_no_large_one(place: Workplace, arena: Arena) -> None:
    source = b"""
import os, socket
def run():
    for _ in range(3000):
        try:
            os.chmod(".", 0o777)
        except OSError:
            pass
    try:
        socket.socket()
    except OSError:
        pass
    raise RuntimeError("done")
"""
    worker = start(source, place, arena)
    try:
        assert failure(worker) == "done"
        assert set(worker.blocked) >= {"socket"}
    finally:
        worker.end()


def until(holds: Callable[[], bool], *, limit_s: float) -> None:
    """Wait until something holds; fails after the limit."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "body", ["kept.append(bytearray(1 << 24))", "kept.append(mmap.mmap(-1, 1 << 24)); touch(kept[-1])"]
)
def test_memory_is_watched_when_nobody_asks(body: str, place: Workplace, arena: Arena) -> None:
    source = f"""
import mmap, threading, time
def touch(memory):
    memory.write(bytes(1 << 24))
def grow():
    kept = []
    time.sleep(0.3)
    while True:
        {body}
threading.Thread(target=grow, daemon=True).start()
"""
    worker = start(source.encode(), place, arena, memory_bytes=1 << 30)
    try:
        worker.ask({"op": "load"}, limit_s=20)
        until(lambda: not processes.living(worker.pids()), limit_s=60)
        with pytest.raises(WorkerEndedError) as caught:
            worker.ask({"op": "state"}, limit_s=20)
        assert caught.value.reason in ("memory_limit", "crashed")
    finally:
        worker.end()


@pytest.mark.parametrize(
    "trick",
    [
        "open(os.path.join(cache, str(number)), 'wb').write(b'x' * (1 << 20))",
        "open(os.path.join(cache, str(number)), 'wb').close()",
        "os.mkdir('d'); os.chdir('d')",
        "os.mkdir(os.path.join(cache, str(number)), 0)",
        "os.symlink('/nowhere', os.path.join(cache, str(number)))",
        "kept.append(open(os.path.join(cache, 'one'), 'wb')); os.unlink(kept[-1].name); "
        "kept[-1].write(b'x' * (1 << 20)); kept[-1].flush()",
    ],
    ids=["large", "many", "deep", "forbidden", "links", "deleted"],
)
def test_no_trick_fills_the_disk(trick: str, place: Workplace, arena: Arena) -> None:
    source = f"""
import os, itertools, time
cache = os.environ["TMPDIR"]
kept = []
def run():
    os.chdir(cache)
    for number in itertools.count():
        try:
            {trick}
        except OSError as error:
            time.sleep(0.3)
            if number > 20000:
                raise RuntimeError("refused")
"""
    worker = start(source.encode(), place, arena)
    try:
        worker.ask({"op": "load"}, limit_s=20)
        with pytest.raises(WorkerEndedError) as caught:
            worker.ask({"op": "call", "arguments": [], "offset": 0}, limit_s=10)
        assert caught.value.reason == "disk_limit" or trick.startswith("kept")
    finally:
        worker.end()


@pytest.mark.parametrize(
    "sent",
    [
        {"outputs": []}, {"ticket": "0" * 16, "error": {"type": "x", "message": "y"}}, {"ticket": None}, {"error": 1},
        {"error": {"type": [], "message": {}}},
    ],
)  # fmt: skip
def test_a_message_ahead_of_its_question_is_no_reply(sent: object, place: Workplace, arena: Arena) -> None:
    data = json.dumps(sent).encode()
    source = f"""
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, {struct.pack("!I", len(data)) + data!r})
    except OSError:
        pass
"""
    worker = start(source.encode(), place, arena)
    try:
        with pytest.raises(WorkerEndedError) as caught:
            worker.ask({"op": "load"}, limit_s=20)
        assert caught.value.reason == "forged_protocol"
    finally:
        worker.end()


def test_a_closed_channel_is_no_error_of_the_judge(place: Workplace, arena: Arena) -> None:
    worker = start(b"import os, time\nos.closerange(3, 64)\ntime.sleep(60)\n", place, arena)
    try:
        with pytest.raises(WorkerEndedError):
            worker.ask({"op": "load"}, limit_s=3)
        with pytest.raises(WorkerEndedError):
            worker.ask({"op": "load"}, limit_s=3)
    finally:
        worker.end()


def test_a_worker_that_gets_no_core_is_not_too_slow(place: Workplace, arena: Arena) -> None:
    source = (
        b"import time\ndef run():\n    while time.process_time() < until: pass\nuntil = time.process_time() + 1.5\n"
    )
    worker = start(source, place, arena)
    core = min(os.sched_getaffinity(0))
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        worker.ask({"op": "load"}, limit_s=20)
        for pid in [*worker.pids(), *(one.pid for one in burners)]:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
        reply = worker.ask({"op": "call", "arguments": [], "offset": 0}, limit_s=2)
        assert reply["outputs"][0]["plain"] is False
    finally:
        for one in burners:
            one.kill()
            one.wait()
        worker.end()


def test_a_worker_that_sleeps_is_too_slow(place: Workplace, arena: Arena) -> None:
    worker = start(b"import time\ndef run():\n    time.sleep(60)\n", place, arena)
    try:
        worker.ask({"op": "load"}, limit_s=20)
        with pytest.raises(WorkerEndedError) as caught:
            worker.ask({"op": "call", "arguments": [], "offset": 0}, limit_s=1)
        assert caught.value.reason == "timed_out"
    finally:
        worker.end()


def test_a_worker_may_be_stopped_while_it_is_asked(place: Workplace, arena: Arena) -> None:
    """The thread that asks reads from a channel that must not be closed under it."""
    for delay in (0.0, 0.001, 0.01, 0.3):
        worker = start(b"import time\n\ndef run():\n    time.sleep(60)", place, arena)
        worker.ask({"op": "load"}, limit_s=20)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(worker.ask, {"op": "call", "arguments": [], "offset": 0}, limit_s=30)
            time.sleep(delay)
            worker.stop()
            with pytest.raises(WorkerEndedError):
                asked.result(20)
        worker.end()
        worker.end()
