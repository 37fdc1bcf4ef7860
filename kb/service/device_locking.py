"""The right to judge on a device of this machine: one holder at a time, or two judges would spoil each other's times.

The lock is the system's, so a process that died holds nothing. Beside it stands who holds it, for whoever waits.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kb.config import cache_folder
from kb.errors import ConfigError
from kb.store.locks import LockBusyError, locked

_FIRST_S = 0.5
"""How long is waited before it is said."""
_LOOK_S = 0.1
"""How often whoever waits looks whether that was given up."""


@contextmanager
def device_lock(
    device: str,
    *,
    wait_s: float = 0.0,
    waiting: Callable[[str], None] | None = None,
    given_up: threading.Event | None = None,
) -> Iterator[None]:
    """Hold the right to judge on a device.

    Args:
        device: ``cpu`` or ``cuda:N``, as this process counts its visible GPUs.
        wait_s: How long to wait for another holder, beyond half a second.
        waiting: Told, once, who is waited for.
        given_up: Ends the wait as soon as it is set.

    Raises:
        ConfigError: There is no place for the lock.
        LockBusyError: Somebody else judges there, also where the wait was given up; says who.
    """
    folder = cache_folder() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}", hint="set KB_CACHE_DIR") from error
    file = folder / f"judge-{_physical(device)}.lock"
    holder = file.with_suffix(".holder")
    with ExitStack() as stack:
        try:
            _enter(stack, file, _FIRST_S, given_up)
        except LockBusyError:
            who = _told(holder)
            if wait_s and waiting is not None:
                waiting(f"process {os.getpid()} waits for {who}, which judges on {device}")
            try:
                _enter(stack, file, wait_s, given_up)
            except LockBusyError as error:
                hint = "wait for it to end, or end it; then run this again"
                raise LockBusyError(f"another run judges on {device}: {_told(holder)}", hint=hint) from error
        stack.callback(holder.unlink, missing_ok=True)
        _leave_word(holder)
        yield


def _enter(stack: ExitStack, file: Path, wait_s: float, given_up: threading.Event | None) -> None:
    """Take the lock, in short turns where the wait may be given up."""
    if given_up is None:
        stack.enter_context(locked(file, wait_s=wait_s))
        return
    end = time.monotonic() + wait_s
    while True:
        left = max(0.0, end - time.monotonic())
        try:
            stack.enter_context(locked(file, wait_s=min(left, _LOOK_S)))
        except LockBusyError:
            if left <= _LOOK_S or given_up.is_set():
                raise
        else:
            return


def _physical(device: str) -> str:
    """Return a name that is the same in processes that see the GPUs in another order."""
    kind, _, number = device.partition(":")
    visible = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    if kind == "cuda" and (number or "0").isdigit() and int(number or 0) < len(visible):
        number = visible[int(number or 0)]
    return f"{kind}-{number or 0}" if kind != "cpu" else kind


def _leave_word(holder: Path) -> None:
    words = {
        "pid": os.getpid(),
        "command": Path(sys.argv[0]).name + "".join(f" {one}" for one in sys.argv[1:3]),
        "since": time.strftime("%H:%M:%S UTC", time.gmtime()),
    }
    with suppress(OSError):  # who waits then learns less
        holder.write_text(json.dumps(words), encoding="utf-8")


def _told(holder: Path) -> str:
    """Return who holds the lock, in words."""
    try:
        words = json.loads(holder.read_text(encoding="utf-8"))
        return f"process {int(words['pid'])} ({str(words['command'])[:80]}, since {str(words['since'])[:20]})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
