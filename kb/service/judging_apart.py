"""Have a candidate judged by a process of its own that can be ended at any moment: needs no torch in this one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kb
from kb import errors
from kb.errors import EntryFormatError, UnknownOperatorError, ValidatorError
from kb.service.device_locking import device_lock
from kb.service.judging import nearest_operators
from kb.store.locks import LockBusyError
from kb.validators.operators.names import NAMES

LONGEST_S = 900.0
"""Longest time of one judgement, seconds."""

LARGEST_BYTES = 1 << 20
"""Largest candidate."""

_PATIENCE_S = 5.0
_LOOK_S = 0.1


class CancelledError(ValidatorError):
    """Whoever asked for the judgement does not want it any more."""


class DeviceBusyError(ValidatorError):
    """Others judged on the device for longer than was waited; says nothing about the candidate."""


class TookTooLongError(ValidatorError):
    """The judgement was ended because its time was over; says nothing about the candidate."""


@dataclass(frozen=True)
class Order:
    """What is to be judged."""

    operator: str
    source: str
    """UTF-8 Python, at most 1 MiB."""
    device: str = "cpu"
    """``cpu`` or ``cuda:N``."""
    dtypes: tuple[str, ...] | None = None
    """Only workloads of these dtypes; None for all of the operator."""
    ghosts: bool = True
    """Replay with each kernel left out in turn."""


Progress = Callable[[str], None]
Runner = Callable[[Order, Progress | None, threading.Event | None], Mapping[str, Any]]
"""Judges: what is ordered, who is told of each step, and what says that it is to be given up."""


def check(order: Order) -> None:
    """Refuse what no judge could begin with.

    Args:
        order: What is to be judged.

    Raises:
        UnknownOperatorError: No operator has this name.
        EntryFormatError: The source is empty, too large or no text.
    """
    check_operator(order.operator)
    try:
        size = len(order.source.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise EntryFormatError("expected source that UTF-8 can write", hint="send Python text") from error
    if not order.source.strip() or size > LARGEST_BYTES:
        found = f"{size:,} bytes" if size else "nothing"
        raise EntryFormatError(f"expected the source of a candidate, at most {LARGEST_BYTES:,} bytes, found {found}")


def check_operator(name: str) -> None:
    """Refuse a name that no operator has.

    Raises:
        UnknownOperatorError: With the nearest names.
    """
    if name not in NAMES:
        near = nearest_operators(name)
        hint = f"nearest: {', '.join(near)}" if near else "kb operators lists them"
        raise UnknownOperatorError(f"no operator is called {name[:80]!r}", hint=hint)


class Turns:
    """Lets few judge at one time; whoever comes when enough wait is sent away."""

    def __init__(self, *, at_once: int = 1, waiting: int = 4) -> None:
        """Nobody judges yet.

        Args:
            at_once: Judgements that run at one time.
            waiting: Most that wait for their turn.
        """
        self._places = threading.BoundedSemaphore(at_once)
        self._most = at_once + waiting
        self._present = 0
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def turn(self, given_up: threading.Event | None) -> Any:  # noqa: ANN401 - a context manager
        """Wait for a turn and hold it.

        Args:
            given_up: Set by whoever does not want to wait any more.

        Raises:
            ValidatorError: Too many wait already.
            CancelledError: It was given up.
        """
        with self._guard:
            if self._present >= self._most:
                message = f"{self._present} judgements run or wait already"
                raise ValidatorError(message, hint="wait a minute and call again")
            self._present += 1
        try:
            while not self._places.acquire(timeout=_LOOK_S):
                if given_up is not None and given_up.is_set():
                    raise CancelledError("the judgement was cancelled before its turn came")
            try:
                yield
            finally:
                self._places.release()
        finally:
            with self._guard:
                self._present -= 1


def judge_apart(
    order: Order,
    progress: Progress | None = None,
    given_up: threading.Event | None = None,
    *,
    most_s: float = LONGEST_S,
) -> Mapping[str, Any]:
    """Judge one candidate in a process of its own, as soon as nobody else on this machine judges on its device.

    Args:
        order: What is to be judged.
        progress: Called with a phrase at each step, from this thread.
        given_up: Ends the judgement with all its processes as soon as it is set.
        most_s: Longest time, seconds, and as long again for whoever judges there already.

    Returns:
        The judge's report as plain values; a failing candidate raises nothing.

    Raises:
        CancelledError: It was given up.
        DeviceBusyError: Others judged on the device for all that time.
        TookTooLongError: Its time was over.
        KbError: As :func:`kb.service.judging.judge_file`.
    """
    check(order)
    with _alone(order.device, progress, given_up, most_s):
        return _judge(order, progress, given_up, most_s)


@contextlib.contextmanager
def _alone(device: str, progress: Progress | None, given_up: threading.Event | None, most_s: float) -> Iterator[None]:
    """Hold the right to judge on a device; who holds it before is nothing for clients."""

    def waiting(_who: str) -> None:
        if progress is not None:
            progress("waiting for another judgement")

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(device_lock(device, wait_s=most_s, waiting=waiting, given_up=given_up))
        except LockBusyError as error:
            if given_up is not None and given_up.is_set():
                raise CancelledError("the judgement was cancelled before its turn came") from error
            message = f"others judge on {device}, and did not end in {most_s:g} s"
            raise DeviceBusyError(message, hint="call again later") from error
        if given_up is not None and given_up.is_set():
            raise CancelledError("the judgement was cancelled before its turn came")
        yield


def _judge(
    order: Order, progress: Progress | None, given_up: threading.Event | None, most_s: float
) -> Mapping[str, Any]:
    # Whatever the judge leaves lying about goes with this folder, also if the judge had to be killed.
    with tempfile.TemporaryDirectory(prefix="kb-judging-", ignore_cleanup_errors=True) as folder:
        with _started(folder) as process:
            watch = _Watch(process, given_up, time.monotonic() + most_s)
            try:
                said = _conversation(process, order, progress)
            finally:
                watch.end()
        if watch.why == "cancelled":
            raise CancelledError("the judgement was cancelled")
        if watch.why == "timed out":
            message = f"the judgement took longer than {most_s:g} s"
            raise TookTooLongError(message, hint="judge fewer dtypes in one call")
        return _report(said, process.returncode)


def _started(folder: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-m", "kb.service.judge_process", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment(), "TMPDIR": folder},
        start_new_session=True,
    )


def environment() -> dict[str, str]:
    """Return the environment of a process that runs this very installation, wherever it is started."""
    package = str(Path(kb.__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))}


def _conversation(process: "subprocess.Popen[bytes]", order: Order, progress: Progress | None) -> dict[str, Any]:
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    line = json.dumps({**vars(order), "dtypes": list(order.dtypes) if order.dtypes else None}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode("utf-8"))
        process.stdin.close()
    last: dict[str, Any] = {}
    for said in process.stdout:
        last = json.loads(said)
        if progress is not None and "progress" in last:
            progress(str(last["progress"])[:200])
    return last


class _Watch:
    """Ends a process when it is given up or its time is over, and with it whatever it started."""

    def __init__(self, process: "subprocess.Popen[bytes]", given_up: threading.Event | None, deadline: float) -> None:
        self.why: str | None = None
        self._process = process
        self._given_up = given_up
        self._deadline = deadline
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="judging")
        self._thread.start()

    def end(self) -> None:
        """Stop watching; nothing of the process's group is left when this returns."""
        self._over.set()
        self._thread.join()
        self._signal(signal.SIGTERM, _PATIENCE_S if self._process.poll() is None else 0)
        self._signal(signal.SIGKILL, _PATIENCE_S)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            if self._given_up is not None and self._given_up.is_set():
                self.why = "cancelled"
            elif time.monotonic() > self._deadline:
                self.why = "timed out"
            if self.why is not None:
                self._signal(signal.SIGTERM, _PATIENCE_S)
                self._signal(signal.SIGKILL, _PATIENCE_S)
                return

    def _signal(self, sign: signal.Signals, wait_s: float) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, sign)
        if wait_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)


def _report(said: Mapping[str, Any], code: int | None) -> Mapping[str, Any]:
    if "report" in said:
        report: Mapping[str, Any] = said["report"]
        return report
    if "error" not in said:
        raise ValidatorError(f"the judge's process ended with {code} and said nothing", hint="kb doctor")
    kind = getattr(errors, str(said["error"]), ValidatorError)
    raise kind(str(said.get("message")), hint=said.get("hint"))
