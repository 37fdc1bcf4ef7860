"""A file lock between processes: shared or exclusive, released by the system when its holder dies."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kb.errors import StoreError

_PAUSE_S = 0.02
_STALE_S = 600.0
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})


class LockBusyError(StoreError):
    """Another process has held the lock for too long."""


if sys.platform == "win32":
    import msvcrt

    def _try_system_lock(handle: int, *, shared: bool) -> bool:
        del shared  # Windows has no shared byte lock in the standard library: readers then wait for each other
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_system_lock(handle: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _try_exclusive_file(path: Path) -> bool:
    """Lock by making a file, where the file system has no locks; one that its holder left behind grows stale."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        try:
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        return False
    return True


def _busy(path: Path, wait_s: float) -> LockBusyError:
    message = f"{path} has been held by another process for more than {wait_s:g} s"
    return LockBusyError(message, hint="wait for it to end, or end it, and try again")


@contextmanager
def locked(path: Path, *, shared: bool = False, wait_s: float = 60.0) -> Iterator[None]:
    """Hold a lock for the duration of a ``with`` block.

    Args:
        path: Lock file, made if it is missing and never removed, because removing it would let two holders in.
        shared: Let other shared holders in.
        wait_s: How long to wait for other holders, in seconds.

    Raises:
        LockBusyError: It was held for longer than that.
        StoreError: The lock file cannot be made.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        hint = f"remove {path}: it is no file" if path.is_dir() else "check its permissions"
        raise StoreError(f"cannot make the lock file {path}: {error.strerror}", hint=hint) from error
    fallback = path.with_name(path.name + ".held")
    made = False
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                got = _try_system_lock(handle, shared=shared)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise StoreError(f"cannot lock {path}: {error.strerror}") from error
                got = made = _try_exclusive_file(fallback)
            if got:
                break
            if time.monotonic() >= deadline:
                raise _busy(path, wait_s)
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(handle)
        if made:
            fallback.unlink(missing_ok=True)
