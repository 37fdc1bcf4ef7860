"""Try to break the sandbox from inside, before a candidate is loaded: a layer counts only if this fails."""

import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from kb.validators.runtime.sandbox import Layers, Limits


def verify(layers: Layers, *, canary: Path, judge_pid: int, limits: Limits) -> None:
    """Attack every layer once and write down which held.

    Args:
        layers: Filled in place.
        canary: A file of the judge that must be neither readable nor writable from here.
        judge_pid: The judge's process, as the host numbers it.
        limits: The resource bounds that were asked for.
    """
    held = layers.verified
    held["file_read"] = _refused(lambda: canary.read_bytes()) and _refused(lambda: list(canary.parent.iterdir()))
    held["file_write"] = all(_refused(attempt) for attempt in _writes(canary))
    held["home_write"] = _refused(lambda: Path("/tmp/kb-escape").write_bytes(b"x"))  # noqa: S108
    held["network"] = _refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    held["unix_socket"] = _refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    held["process"] = _refused(_spawn)
    held["signal"] = _refused(lambda: os.kill(judge_pid, 0))
    held["memory_of_others"] = _refused(lambda: Path(f"/proc/{judge_pid}/mem").open("rb").close())
    held["uid"] = _refused(lambda: os.setresuid(0, 0, 0))
    held["memory"] = resource.getrlimit(resource.RLIMIT_DATA)[0] <= limits.data_bytes
    held["files"] = resource.getrlimit(resource.RLIMIT_FSIZE)[0] <= limits.file_bytes


def _writes(canary: Path) -> tuple[Callable[[], object], ...]:
    return (
        lambda: canary.with_name("escaped").write_bytes(b"x"),
        lambda: os.truncate(canary, 0),
        lambda: canary.rename(canary.with_name("renamed")),
        lambda: canary.with_name("linked").hardlink_to(canary),
        lambda: canary.with_name("linked").symlink_to(canary),
        lambda: canary.with_name("made").mkdir(),
        lambda: canary.unlink(),
        lambda: canary.chmod(0o777),
        lambda: os.utime(canary),
    )


def _spawn() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def exec_refused() -> bool:
    """Tell whether a program that is no compiler cannot be started while the judge lets processes be made."""
    child = os.fork()
    if child == 0:
        try:
            os.execv(sys.executable, [sys.executable, "-I", "-c", ""])  # noqa: S606 - it must fail
        except OSError:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False
