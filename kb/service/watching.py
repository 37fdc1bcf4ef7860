"""Tell whether files below ``entries/`` changed, faster than by listing every folder.

Where the system signals changes, no signal means no change; times are compared once a second all the same, for what is
not signalled. Elsewhere: a folder's own times change when something in it is made, removed or renamed, a file's when
it is written, so a process that has listed a tree once need only ask for the times of what it knows. It may do so only
once everything is old enough that a further change must show in the times.
"""

import os
import time
from pathlib import Path

from kb import catalogue
from kb.service.signals import Signals

_Times = tuple[int, int, int]

_COARSE_NS = 1_000_000_000
_MARGIN_NS = 20_000_000
_TRUSTED_S = 1.0
"""How long signals alone are relied on."""


class Tree:
    """The files below one ``entries/`` folder, between looks at them. One thread at a time."""

    def __init__(self, entries: Path) -> None:
        """Name the folder; nothing is read.

        Args:
            entries: The ``entries/`` folder.
        """
        self._entries = entries
        self._known: dict[str, _Times] = {}
        self._state = ""
        self._signals = Signals()
        self._signalled = False
        self._compared = 0.0

    def state(self) -> str:
        """Return what :func:`kb.catalogue.tree_state` would return now.

        Raises:
            IndexStaleError: The folder cannot be listed.
        """
        if not self._known:
            self._list()
        elif self._signalled and time.monotonic() - self._compared < _TRUSTED_S:
            if self._signals.changed():
                self._list()
        elif self._changed():
            self._list()
        return self._state

    def close(self) -> None:
        """Let go of what signals changes."""
        self._signals.close()
        self._known, self._signalled = {}, False

    def _changed(self) -> bool:
        self._compared = time.monotonic()
        lstat = os.lstat
        try:
            for path, times in self._known.items():
                stat = lstat(path)
                if times != (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns):
                    return True
        except OSError:
            return True
        return False

    def _list(self) -> None:
        began = time.time_ns()
        # Folders before files: what changes in between makes a folder's times others than those that are kept.
        folders = _folders(self._entries)
        # Signals before files, for the same reason: what changes while files are listed is signalled.
        self._signalled = bool(folders) and self._signals.watch(folders)
        self._signals.changed()
        rows = catalogue.tree_rows(self._entries)
        self._state = catalogue.state_of(rows)
        known = dict(folders)
        for row in rows:
            name, size, mtime, ctime = row.split("\0")
            known[f"{self._entries}/{name}"] = (int(size), int(mtime), int(ctime))
        settled = all(_is_settled(max(mtime, ctime), began) for _, mtime, ctime in known.values())
        self._known = known if settled else {}
        self._compared = time.monotonic()


def _folders(top: Path) -> dict[str, _Times]:
    found: dict[str, _Times] = {}
    stack = [str(top)]
    while stack:
        path = stack.pop()
        try:
            stat = os.lstat(path)
            found[path] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            with os.scandir(path) as listing:
                stack += [
                    item.path
                    for item in listing
                    if item.is_dir(follow_symlinks=False)
                    and not item.name.startswith(".")
                    and item.name != "__pycache__"
                ]
        except OSError:
            return {}  # it is being changed right now, or cannot be read: the listing of files will say which
    return found


def _is_settled(changed_ns: int, began_ns: int) -> bool:
    # Kernels stamp files with a clock that lags by up to 10 ms; some file systems count whole seconds only.
    return changed_ns < began_ns - (2 * _COARSE_NS if changed_ns % _COARSE_NS == 0 else _MARGIN_NS)
