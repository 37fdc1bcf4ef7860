"""The folders of one judgement: below one root, locked while the judge lives, removed at the end.

A judge that is killed cannot clean up after itself. The next one does: a root whose lock nobody holds is nobody's.
"""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path

_PREFIX, _NEW = "kb-judge-", "kb-new-"
_LOCK = "lock"
_STALE_S = 3600


class Workplace:
    """One root for all folders of one judgement."""

    def __init__(self) -> None:
        sweep()
        made = Path(tempfile.mkdtemp(prefix=_NEW))
        self._lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Only a locked root bears the name that others look for.
        self.root = made.rename(made.with_name(made.name.replace(_NEW, _PREFIX, 1)))
        self.root.chmod(0o711)

    def folder(self, name: str) -> Path:
        """Make a folder that only the judge can enter; ``name`` may be asked for repeatedly."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))

    def close(self) -> None:
        """Remove everything."""
        remove(self.root)
        os.close(self._lock)


def sweep() -> None:
    """Remove what judges left behind that were killed; never raises for what it may not touch."""
    base = Path(tempfile.gettempdir())
    for entry in [*base.glob(f"{_PREFIX}*"), *base.glob(f"{_NEW}*")]:
        with contextlib.suppress(OSError):
            facts = entry.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
                continue
            if entry.name.startswith(_NEW):
                if time.time() - facts.st_mtime > _STALE_S:
                    remove(entry)
                continue
            lock = os.open(entry / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(entry)
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder however deep, wide or forbidden its contents are; what cannot be removed stays.

    Folders inside are flattened into the top one before they go, so that neither the depth of recursion nor the
    length of a path is a limit that a candidate could use.
    """
    with contextlib.suppress(OSError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _flatten(top)
        finally:
            os.close(top)
        folder.rmdir()


def _flatten(top: int) -> None:
    while True:
        names = os.listdir(top)
        if not names:
            return
        for name in names:
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                for below in os.listdir(inner):  # noqa: PTH208 - of a descriptor
                    if stat.S_ISDIR(os.stat(below, dir_fd=inner, follow_symlinks=False).st_mode):
                        os.chmod(below, 0o700, dir_fd=inner)
                        os.rename(below, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(below, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def usage(folder: Path, *, most_bytes: int, most_entries: int) -> tuple[int, int]:
    """Return (bytes on disk, entries) below a folder; stops counting where a bound is passed.

    Args:
        folder: Where to look; links are not followed.
        most_bytes: Counting stops above this.
        most_entries: Counting stops above this.
    """
    total, entries, todo = 0, 0, [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as found:
                for one in found:
                    entries += 1
                    with contextlib.suppress(OSError):
                        total += one.stat(follow_symlinks=False).st_blocks * 512
                    if one.is_dir(follow_symlinks=False):
                        todo.append(one.path)
                    if total > most_bytes or entries > most_entries:
                        return total, entries
        except FileNotFoundError:
            # Compilers make folders and remove them while one looks.
            continue
        except OSError:
            # A folder that cannot be listed, or a path that has become too long, is counted as one that is too much.
            entries += most_entries
    return total, entries


def states_below(folder: Path, *, most: int = 20_000) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything below a folder that is not a folder itself, by name."""
    found = {}
    for name in files_below(folder, most=most):
        with contextlib.suppress(OSError):
            facts = (folder / name).lstat()
            found[name] = (facts.st_size, facts.st_mtime_ns)
    return found


def files_below(folder: Path, *, most: int = 100) -> list[str]:
    """Name everything below a folder that is not a folder itself, links included; at most ``most``."""
    names: list[str] = []
    todo = [str(folder)]
    while todo and len(names) < most:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as found:
            for one in found:
                if one.is_dir(follow_symlinks=False):
                    todo.append(one.path)
                else:
                    names.append(os.path.relpath(one.path, folder))
    return sorted(names)[:most]
