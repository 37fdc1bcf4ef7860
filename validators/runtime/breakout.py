"""Try to break the sandbox from inside, before a candidate is loaded: a layer counts only if this fails."""

import os
import resource
import socket
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
    layers.verified["file_read"] = _refused(lambda: canary.read_bytes())
    layers.verified["file_write"] = _refused(lambda: canary.with_name("escaped").write_bytes(b"x"))
    layers.verified["home_write"] = _refused(lambda: Path("/tmp/kb-escape").write_bytes(b"x"))  # noqa: S108
    layers.verified["network"] = _refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    layers.verified["unix_socket"] = _refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    layers.verified["process"] = _refused(_spawn)
    layers.verified["signal"] = _refused(lambda: os.kill(judge_pid, 0))
    layers.verified["uid"] = _refused(lambda: os.setresuid(0, 0, 0))
    layers.verified["memory"] = resource.getrlimit(resource.RLIMIT_DATA)[0] <= limits.data_bytes
    layers.verified["files"] = resource.getrlimit(resource.RLIMIT_FSIZE)[0] <= limits.file_bytes


def _spawn() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False
