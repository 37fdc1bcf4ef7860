"""Two folders swap their names at once, so that a kill at any moment leaves one whole folder or the other."""

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path

_HERE = -100
"""``AT_FDCWD``: paths are absolute anyway."""
_SWAP = 2
"""``RENAME_EXCHANGE`` of Linux and ``RENAME_SWAP`` of macOS."""
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV})


@cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (OSError, TypeError):  # pragma: no cover - no C library that could be asked
        return None


def exchange(one: Path, other: Path) -> bool:
    """Let two folders on one file system swap their names.

    Args:
        one: Absolute path of what is there.
        other: Likewise.

    Returns:
        True if it was done; False where the system or its file system cannot.

    Raises:
        OSError: It can, and did not: one of them is missing, or may not be moved.

    Source:
        renameat2(2) of Linux 3.15, renamex_np(2) of macOS 10.12.
    """
    library = _library()
    paths = os.fsencode(one), os.fsencode(other)
    if library is not None and sys.platform == "linux" and hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, paths[0], _HERE, paths[1], _SWAP)
    elif library is not None and sys.platform == "darwin" and hasattr(library, "renamex_np"):  # pragma: no cover
        failed = library.renamex_np(*paths, _SWAP)
    else:  # pragma: no cover - neither
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
