"""The judge's end of seccomp user notification: every refused system call is seen before it is refused."""

import errno
import fcntl
import os
import select
import struct
import threading
from collections import Counter

from kb.validators.runtime import syscalls

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1

STARTS = frozenset({"fork", "vfork", "execve", "execveat"})
"""What makes a process or turns it into another."""

OPENING = frozenset({"socket", "connect", "bind", "listen"})
"""What the driver of a GPU does when it starts: it looks for a daemon, and gives up (error 304) if it may not look."""

BUILD = STARTS | {"chmod", "fchmod", "fchmodat", "fchmodat2", "utimensat", "utime", "utimes", "prlimit64"}
"""What starting a compiler takes, and what compilers do to the files and limits of their own."""


class Watcher:
    """Answers every notification on a thread of its own: EPERM, and counted, unless the judge lets the call through."""

    def __init__(self, listener: int) -> None:
        self._listener = listener
        # Counted by name: there are few names, so no flood of one call can hide another.
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._allowed: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._serve, name="kb-seccomp", daemon=True)
        self._thread.start()

    def allow(self, names: frozenset[str]) -> None:
        """Let the named calls through from now on, and no others.

        What is let through was never decided by its arguments, so that changing them in time gains nothing.
        """
        self._allowed = names

    def take(self) -> Counter[str]:
        """Return how often each call was refused since the last ``take``."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts

    def close(self) -> None:
        """Wait for the thread, which ends when the worker has."""
        self._thread.join(timeout=5)

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        try:
            while True:
                events = poller.poll(1000)
                if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in events):
                    return
                if events and not self._answer():
                    return
        finally:
            os.close(self._listener)

    def _answer(self) -> bool:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN)
        identity, _pid, _flags, number, *_ = _NOTIFICATION.unpack(bytes(buffer))
        name = syscalls.name_of(number)
        if name in self._allowed:
            answer = _RESPONSE.pack(identity, 0, 0, _CONTINUE)
        else:
            with self._lock:
                self._counts[name] += 1
            answer = _RESPONSE.pack(identity, 0, -errno.EPERM, 0)
        try:
            fcntl.ioctl(self._listener, _SEND, bytearray(answer))
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.EINTR)
        return True
