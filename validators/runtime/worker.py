"""The judge's handle on one candidate worker: start, talk, watch from outside, end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from kb.validators.runtime import wire
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.watch import Watcher

_TAIL_BYTES = 16 << 10
_POLL_S = 0.05


class JudgeError(Exception):
    """The judge itself cannot work; says nothing about a candidate."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WorkerEndedError(Exception):
    """The worker is gone, was stopped, or broke the protocol; ``reason`` is a code of ``report.REASONS``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def boot_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of kb in a fresh, isolated interpreter."""
    home = Path(__file__).resolve().parents[2]
    package = sys.modules["kb"].__file__
    if package is not None:
        home = Path(package).resolve().parents[1]
    code = f"import sys; sys.path.insert(0, {str(home)!r}); from {module} import main; sys.path.pop(0); main()"
    if module.endswith(".reference"):
        code = code.replace("sys.path.pop(0); ", "")
    return [sys.executable, "-I", "-B", "-c", code, *arguments]


class Worker:
    """One sandboxed process that may run one candidate."""

    def __init__(self, source: bytes, *, arena: Arena, limits: Limits, triton: bool, function: str = "run") -> None:
        self.limits = limits
        self.blocked: list[str] = []
        self.layers: dict[str, Any] = {}
        self._private = Path(tempfile.mkdtemp(prefix="kb-judge-"))
        self.folder = Path(tempfile.mkdtemp(prefix="kb-candidate-"))
        self.cache = Path(tempfile.mkdtemp(prefix="kb-cache-"))
        self._private.joinpath("canary").write_text("not for candidates", encoding="ascii")
        self.folder.chmod(0o755)
        (self.folder / "candidate.py").write_bytes(source)
        (self.folder / "candidate.py").chmod(0o444)
        self._tail: deque[bytes] = deque()
        self._killed_for: str | None = None
        self._watcher: Watcher | None = None
        self._start(arena, triton, function)

    def _start(self, arena: Arena, triton: bool, function: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = ours
        read_end, write_end = os.pipe()

        handles = (theirs.fileno(), arena.descriptor)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            boot_command("kb.validators.runtime.stub", *map(str, handles)),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            env=self._environment(),
            cwd=self.folder,
            pass_fds=handles,
            start_new_session=True,
        )
        theirs.close()
        os.close(write_end)
        threading.Thread(target=self._drain, args=(read_end,), name="kb-output", daemon=True).start()
        order = {
            "folder": str(self.folder),
            "file": "candidate.py",
            "function": function,
            "cache": str(self.cache),
            "canary": str(self._private / "canary"),
            "judge_pid": os.getpid(),
            "triton": triton,
            "limits": vars(self.limits),
        }
        wire.send(self.channel, order)

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE") if name in os.environ
        }
        cache = str(self.cache)
        return kept | {
            "HOME": cache, "TMPDIR": cache, "TRITON_CACHE_DIR": cache, "XDG_CACHE_HOME": cache, "TRITON_INTERPRET": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "random", "LC_ALL": "C.UTF-8",
            # Idle OpenMP threads sleep instead of spinning, so that spinning is not mistaken for late work.
            "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0",
        }  # fmt: skip

    def _drain(self, descriptor: int) -> None:
        """Keep the last bytes of what the candidate prints; it can print for ever without filling anything."""
        held = 0
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while part := stream.read(1 << 14):
                self._tail.append(part)
                held += len(part)
                while held > _TAIL_BYTES and len(self._tail) > 1:
                    held -= len(self._tail.popleft())

    def wait_ready(self, *, limit_s: float) -> dict[str, Any]:
        """Wait until the worker sits in a verified sandbox.

        Returns:
            Active and verified layers.

        Raises:
            JudgeError: The sandbox cannot be had here.
        """
        try:
            self.channel.settimeout(limit_s)
            mark, descriptors, _, _ = socket.recv_fds(self.channel, 1, 4)
            if mark == b"L" and descriptors:
                self._watcher = Watcher(descriptors[0])
            message = wire.receive(self.channel, limit_s=limit_s)
        except (wire.WireError, OSError, TimeoutError) as error:
            self.end()
            tail = self.output()[-600:]
            raise JudgeError(
                f"the worker did not reach its sandbox: {error}; {tail.strip()}",
                "the judge needs Linux with Landlock and seccomp, torch, and some free memory: kb doctor",
            ) from error
        self.layers = message
        self.take_blocked()
        self.blocked.clear()
        return message

    def ask(self, message: dict[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Send one message and wait for its reply, watching memory and disk meanwhile.

        Raises:
            WorkerEndedError: Timed out, ended, exceeded a limit or broke the protocol.
        """
        guard = threading.Event()
        watching = threading.Thread(target=self._guard, args=(guard,), name="kb-guard", daemon=True)
        watching.start()
        try:
            self.channel.settimeout(limit_s)
            wire.send(self.channel, message)
            return wire.receive(self.channel, limit_s=limit_s)
        except wire.WireError as error:
            raise self._ended(error) from error
        finally:
            guard.set()
            watching.join()
            self.take_blocked()

    def _ended(self, error: wire.WireError) -> WorkerEndedError:
        if self._killed_for is not None:
            return WorkerEndedError(self._killed_for)
        if error.kind == "timed_out":
            return WorkerEndedError("timed_out")
        if error.kind == "malformed":
            return WorkerEndedError("forged_protocol", str(error))
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerEndedError("forged_protocol", "the channel was closed by a living process")
        if code == 0:
            return WorkerEndedError("exited", "with code 0; success is valid bytes, not an exit code")
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        return WorkerEndedError("crashed", f"the process ended: {name}")

    def _guard(self, done: threading.Event) -> None:
        while not done.wait(_POLL_S):
            if self.resident_bytes() > self.limits.memory_bytes:
                self._killed_for = "memory_limit"
            elif _size(self.cache) > self.limits.file_bytes:
                self._killed_for = "disk_limit"
            if self._killed_for is not None:
                self._kill()
                return

    def pids(self) -> list[int]:
        """Return the worker's processes, as this host numbers them."""
        found, todo = [], [self._process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    todo += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
        return found

    def resident_bytes(self) -> int:
        """Return the memory held by the worker's processes, shared memory included."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError, IndexError, ValueError):
                total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return total * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Return the CPU time that the worker's processes have used."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def pause(self, stopped: bool) -> None:
        """Stop the worker's processes, or let them go on."""
        for pid in self.pids()[1:] or self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def take_blocked(self) -> list[str]:
        """Return the system calls refused since the last time, and remember them in ``blocked``."""
        names = self._watcher.take() if self._watcher is not None else []
        self.blocked.extend(names[: max(0, 200 - len(self.blocked))])
        return names

    def files_left(self) -> list[str]:
        """Name the files in the worker's one writable folder."""
        return sorted(str(one.relative_to(self.cache)) for one in self.cache.rglob("*") if not one.is_dir())[:100]

    def output(self) -> str:
        """Return the last of what the candidate printed; foreign text, not yet escaped."""
        return b"".join(self._tail).decode("utf-8", "replace")

    def _kill(self) -> None:
        for pid in reversed(self.pids()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End the worker and all that it started, and remove its folders."""
        self._kill()
        deadline = time.monotonic() + 5
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.channel.close()
        if self._watcher is not None:
            self._watcher.close()
        for folder in (self._private, self.folder, self.cache):
            shutil.rmtree(folder, ignore_errors=True)


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118 - hot loop
    return total
