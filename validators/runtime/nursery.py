"""The nursery: a trusted process that has imported torch and forks workers, which then need not import it again.

It is started by the judge, runs no candidate, and knows nothing that is worth stealing: no seed, no key, no
expectation, not even what a worker is asked to do, for a worker reads its order itself, after the fork. What a worker
inherits is therefore what a fresh interpreter that imported torch would have. Three things are shared by all workers
of one nursery that fresh ones would not share: the seed of Python's string hashes, the layout of the address space,
and the canary of the stack. A candidate can read all three in its own process anyway, none of them protects the
judge, which is another program with its own, and no verdict depends on them.

It is single-threaded when it forks: torch starts its threads at the first parallel loop, which is the worker's, and
OpenBLAS ends its threads before a fork.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import traceback

from kb.validators.runtime import seccomp, wire

STATUS = struct.Struct("!i")
"""What the nursery sends: the pid of a new worker to the judge, an exit code to whoever holds a worker's leash."""

MOST_DESCRIPTORS = 16
"""Most descriptors of one request: leash, input, output, and what the worker is handed."""

_PR_SET_PDEATHSIG = 1

_ORDER_LIMIT_S = 600
"""The judge sends the order at once, unless it is stopped meanwhile."""


def main() -> None:
    """Import torch, then fork until the judge hangs up; no worker comes back from here."""
    control = socket.socket(fileno=int(sys.argv[1]))
    judge_pid = os.getppid()
    importlib.import_module("torch")
    importlib.import_module("kb.validators.runtime.stub")
    _settle()
    _become_worker(_Nursery(control, judge_pid).serve())


def threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are not looked at


def _settle() -> None:
    """Fork once for nothing: OpenBLAS ends its threads before a fork and starts them again when it has work."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


class _Nursery:
    """The loop of the nursery, and the workers that are not yet released."""

    def __init__(self, control: socket.socket, judge_pid: int) -> None:
        self._control = control
        self._judge_pid = judge_pid
        self._leashes: dict[int, socket.socket] = {}
        self._ended: set[int] = set()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> list[int]:
        """Fork on request; returns only in a worker, with the descriptors that came for it."""
        while True:
            poller = select.poll()
            for descriptor in (self._control.fileno(), self._woken):
                poller.register(descriptor, select.POLLIN)
            holders = {leash.fileno(): pid for pid, leash in self._leashes.items()}
            for descriptor in holders:
                poller.register(descriptor, 0)  # a closed other end shows without being asked for
            ready = {descriptor for descriptor, _ in poller.poll(1000)}
            if os.getppid() != self._judge_pid:
                self._leave()
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
            self._report_ended()
            for descriptor in ready & set(holders):
                self._release(holders[descriptor])
            if self._control.fileno() in ready and (descriptors := self._request()):
                return descriptors

    def _request(self) -> list[int]:
        mark, descriptors, _, _ = socket.recv_fds(self._control, 1, MOST_DESCRIPTORS)
        if not mark:
            self._leave()
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._forget(own_pid)
            return descriptors
        leash, *others = descriptors
        for descriptor in others:
            os.close(descriptor)
        self._leashes[pid] = socket.socket(fileno=leash)
        self._control.sendall(STATUS.pack(pid))
        return []

    def _forget(self, parent: int) -> None:
        """Become a process that is no nursery: dies with its parent, is woken by nothing, holds no one's leash."""
        seccomp.libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._control, *self._leashes.values()):
            one.close()
        os.close(self._woken)
        os.close(self._wake)

    def _report_ended(self) -> None:
        """Tell the holder of a leash how its worker ended; the pid stays taken until the leash is let go."""
        for pid in set(self._leashes) - self._ended:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                self._ended.add(pid)
                code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
                with contextlib.suppress(OSError):
                    self._leashes[pid].sendall(STATUS.pack(code))

    def _release(self, pid: int) -> None:
        """End a worker, if it still runs, whose leash was let go."""
        if pid not in self._ended:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._ended.discard(pid)
        self._leashes.pop(pid).close()

    def _leave(self) -> None:
        """End all workers and then itself: the judge is gone."""
        for pid in self._leashes:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _become_worker(descriptors: list[int]) -> None:
    """Put on what a fresh process would have been started with, and run its module."""
    leash, given, printed, *handles = descriptors
    os.setsid()
    os.dup2(given, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.close(given)
    os.close(printed)
    with socket.socket(fileno=leash) as holder:
        order = wire.receive(holder, limit_s=_ORDER_LIMIT_S)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    tempfile.tempdir = None
    if "numpy.random" in sys.modules:  # Python's own generator is seeded anew at a fork, numpy's is not
        sys.modules["numpy.random"].seed()
    sys.argv = ["-c", *map(str, handles), *order["arguments"]]
    code = 1
    try:
        importlib.import_module(order["module"]).main()
        code = 0
    except BaseException:  # noqa: BLE001 - the last frame of a process: what is raised is printed
        traceback.print_exc()
    # Not through the interpreter's own end: taking torch's modules apart takes a second.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
