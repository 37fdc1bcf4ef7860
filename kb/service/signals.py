"""Linux tells when something below a folder changed, so that nobody need look: inotify, through ctypes.

A change is signalled before the call that made it returns. Two kinds are not: what another machine does to a network
file system, and what is written through a memory map; whoever relies on signals has to look now and then all the same.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

MOST_FOLDERS = 4_096
"""Folders that are watched at most: the system counts watches of a user, and others need some too."""

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _ONLYDIR, _DONT_FOLLOW = 0x400, 0x800, 0x1000000, 0x2000000
_ASKED = (
    _MODIFY
    | _ATTRIB
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _DELETE_SELF
    | _MOVE_SELF
    | _ONLYDIR
    | _DONT_FOLLOW
)


class Signals:
    """Signals of changes in some folders. One thread at a time."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._handle = -1
        self._watched: set[str] = set()

    def watch(self, folders: Iterable[str]) -> bool:
        """Watch these folders and no others; tell whether that is possible here.

        Args:
            folders: Paths; what is inside of them is watched, what is inside of folders in them is not.
        """
        wanted = set(folders)
        if sys.platform != "linux" or len(wanted) > MOST_FOLDERS:
            self.close()
            return False
        if self._handle < 0 or not self._watched <= wanted:
            self.close()
            self._handle = _init()
        if self._handle < 0:
            return False
        for folder in wanted - self._watched:
            if not _add(self._handle, folder):
                self.close()
                return False
        self._watched = wanted
        return True

    def changed(self) -> bool:
        """Tell whether anything changed since the last question, or cannot be told."""
        if self._handle < 0:
            return True
        found = False
        try:
            while os.read(self._handle, 65_536):
                found = True
        except BlockingIOError:
            return found
        except OSError:
            self.close()
        return True

    def close(self) -> None:
        """Watch nothing any more."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle, self._watched = -1, set()


def _init() -> int:
    try:
        return int(_library().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (AttributeError, OSError):
        return -1


def _add(handle: int, folder: str) -> bool:
    return int(_library().inotify_add_watch(handle, os.fsencode(folder), _ASKED)) >= 0


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
