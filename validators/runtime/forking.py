"""The judge's side of the nursery: starts it once, asks it for workers, and holds each of them on a leash."""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kb.validators.runtime import wire
from kb.validators.runtime.halting import SLICE_S
from kb.validators.runtime.launching import Launch, Output
from kb.validators.runtime.nursery import STATUS

_IMPORT_LIMIT_S = 600


class NurseryError(OSError):
    """No worker could be forked: torch cannot be imported, or memory or processes are short."""


class Forked:
    """A worker that a nursery forked: the part of ``subprocess.Popen`` that the judge uses.

    Its pid stays its own until ``release``, so that no signal can reach another process.
    """

    def __init__(self, pid: int, leash: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.lost = False
        """True if the nursery is gone, and with it all of its workers: nobody knows how this one ended."""
        self._leash = leash
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        with self._lock:
            return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        waited = 0.0
        while (code := self.poll()) is None:
            if timeout is not None and waited > timeout:
                raise subprocess.TimeoutExpired("worker", timeout)
            began = time.monotonic()
            time.sleep(0.002)
            waited += min(time.monotonic() - began, SLICE_S)  # not while it was stopped itself
        return code

    def _look(self, limit_s: float) -> int | None:
        if self.returncode is None:
            self._leash.settimeout(limit_s)
            try:
                data = self._leash.recv(STATUS.size)
            except (BlockingIOError, TimeoutError):
                return None
            except OSError:
                data = b""
            self.lost = len(data) != STATUS.size
            self.returncode = -signal.SIGKILL if self.lost else int(STATUS.unpack(data)[0])
        return self.returncode

    def kill(self) -> None:
        """End the process if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Let go of it; the nursery ends it if it still runs. May be called again."""
        with self._lock:
            if self._look(0) is None:
                self.returncode = -signal.SIGKILL
            self._leash.close()


class _Nursery:
    """The judge's handle on one nursery."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        read_end, write_end = os.pipe()
        self._output = Output(read_end)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end, env=dict(environment), cwd="/",
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
            os.close(write_end)

    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, order: dict[str, Any], descriptors: Sequence[int]) -> Forked:
        """Ask for a worker.

        Raises:
            NurseryError: It could not import torch, cannot fork, or is gone.
        """
        leash, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._lock:
                self._control.settimeout(_IMPORT_LIMIT_S)
                with theirs:
                    socket.send_fds(self._control, [b"F"], [theirs.fileno(), *descriptors])
                data = self._control.recv(STATUS.size, socket.MSG_WAITALL)
                if len(data) != STATUS.size:
                    raise OSError("it is gone")
            wire.send(leash, order)
            return Forked(int(STATUS.unpack(data)[0]), leash)
        except (OSError, wire.WireError) as error:
            leash.close()
            self.end()
            raise NurseryError(f"no worker could be started: {error}; {self._output.text()[-600:].strip()}") from error

    def _last_words(self) -> str:
        """Return the end of what the nursery printed; all of it, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
            self._output.close()
        return self._output.text()[-600:].strip()

    def end(self) -> None:
        """Hang up, upon which the nursery ends its workers and itself."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=5)
        self._output.close()


class _Nurseries:
    """The nurseries of this process, one for each environment; they live until the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, str], _Nursery] = {}

    def get(self, command: Sequence[str], environment: Mapping[str, str]) -> _Nursery:
        """Return a nursery that lives; starts one if there is none."""
        # A process that was forked off this one needs a nursery of its own, and another interpreter likewise.
        key = (os.getpid(), repr((command, sorted(environment.items()))))
        with self._lock:
            held = self._held.get(key)
            if held is None or not held.alive():
                if held is not None:
                    held.end()
                if not self._held:
                    atexit.register(self.end)
                held = self._held[key] = _Nursery(command, environment)
            return held

    def end(self) -> None:
        with self._lock:
            for (pid, _), held in self._held.items():
                if pid == os.getpid():
                    held.end()
            self._held.clear()


_NURSERIES = _Nurseries()


def prepare(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a nursery unless there is one; returns at once, while it imports torch.

    Args:
        command: Runs ``nursery.main``.
        environment: Variables of the nursery; what libraries read when they are loaded is settled by it.
    """
    _NURSERIES.get(command, environment)


def fork(
    module: str, *arguments: str, launch: Launch, command: Sequence[str], environment: Mapping[str, str],
    given: int | None = None,
) -> Forked:  # fmt: skip
    """Start a module of kb in a process that has imported torch already.

    Args:
        module: Has a function ``main`` that reads ``sys.argv``.
        arguments: Follow the numbers of the handles there.
        launch: Handles, output, environment and folder of the process.
        command: Runs ``nursery.main``.
        environment: Variables of the nursery, as in ``prepare``.
        given: Descriptor of its standard input; None for an empty one.

    Raises:
        NurseryError: torch cannot be imported here, or memory or processes are short.
    """
    order = {
        "module": module, "arguments": arguments, "environment": dict(launch.environment), "folder": str(launch.folder)
    }  # fmt: skip
    nursery = _NURSERIES.get(command, environment)
    if given is not None:
        return nursery.fork(order, [given, launch.output, *launch.handles])
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a name, no path of ours
        return nursery.fork(order, [nothing.fileno(), launch.output, *launch.handles])
