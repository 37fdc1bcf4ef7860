"""Files many entries at once: all of them or none, whenever the machine stops.

Everything is written in a hidden folder of the same file system and flushed with one call; then one intent is noted,
and only then folders are renamed. Without the intent nothing was promised and the next one to come clears the rest;
with it, :func:`kb.store.journal.recover` completes it. One flush for all instead of four for each is what lets a
hundred thousand entries go in.
"""

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kb.store import journal, layout

INTENT = {"bulk": 1}
"""What the intent of a bulk filing says."""

_FLUSHES_ALL = sys.platform.startswith("linux")
"""Only there sync() returns when everything is on disk."""


class Filing:
    """A set of entries on their way in."""

    def __init__(self, entries: Path, work: Path) -> None:
        self._entries = entries
        self._work = work
        self.count = 0
        """Entries staged so far."""

    def stage(self, entry_id: str, files: Mapping[str, bytes]) -> None:
        """Write one entry aside; it appears with all others when the block ends.

        Args:
            entry_id: Its id; a second one of the same id is an error.
            files: All its files by name, also the evidence to keep.

        Raises:
            StoreError: The folder cannot be written.
            EntryFormatError: The id is none.
        """
        folder = layout.folder_of(self._work / "new", entry_id)
        try:
            folder.mkdir(parents=True)
            for name, body in files.items():
                path = folder / name
                if "/" in name:
                    path.parent.mkdir(parents=True, exist_ok=True)
                if _FLUSHES_ALL:
                    with path.open("xb") as file:
                        file.write(body)
                else:
                    journal.write_flushed(path, body)
        except OSError as error:
            raise journal.store_error(error, f"add {entry_id}") from error
        self.count += 1


@contextmanager
def filing(entries: Path, *, wait_s: float = 60.0) -> Iterator[Filing]:
    """Hold the right to add, and file everything that was staged when the block ends without an error.

    What is read of existing entries inside the block is still true when the new ones go in.

    Args:
        entries: The ``entries/`` folder.
        wait_s: How long to wait for another one who adds, in seconds.

    Raises:
        StoreError: The folder cannot be written, or its lock is held for too long; nothing was changed.
    """
    with journal.adding(entries, wait_s=wait_s):
        work = journal.stage_of(entries) / secrets.token_hex(8)
        made = Filing(entries, work)
        try:
            (work / "new").mkdir(parents=True)
        except OSError as error:
            raise journal.store_error(error, f"write below {entries}") from error
        try:
            yield made
            if made.count:
                _promise(entries, work)
        except OSError as error:
            _discard(work)
            raise journal.store_error(error, "add the entries") from error
        except BaseException:
            _discard(work)
            raise
        if not made.count:
            _discard(work)
            return
        try:
            roll_forward(entries, work)
        except OSError as error:
            # The promise stands: whoever opens the knowledge base next completes it.
            raise journal.store_error(error, "put all entries in place; the next command will") from error


def _discard(work: Path) -> None:
    # The promise goes first: half of what it promises must never be put in place.
    (work / journal.INTENT).unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)


def _promise(entries: Path, work: Path) -> None:
    if _FLUSHES_ALL:
        os.sync()
    draft = work / "intent.draft"
    journal.write_flushed(draft, json.dumps(INTENT).encode("utf-8"))
    journal.flush_folder(work)
    draft.rename(work / journal.INTENT)
    for folder in (work, work.parent, entries / journal.HIDDEN):
        journal.flush_folder(folder)


def _staged(new: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the folder of each staged entry and its path relative to ``entries/``; one topic's names at a time."""
    for kind in sorted(each.name for each in new.iterdir()):
        for topic in sorted(each.name for each in (new / kind).iterdir()):
            for slug in os.listdir(new / kind / topic):  # noqa: PTH208 - names alone, a hundred thousand of them
                yield new / kind / topic / slug, Path(kind, topic, slug)


def roll_forward(entries: Path, work: Path) -> None:
    """Put staged entries in place; every step may have been done before.

    Args:
        entries: The ``entries/`` folder.
        work: The hidden folder that holds them and their intent.

    Raises:
        OSError: A folder cannot be renamed.
    """
    new, old = work / "new", work / "old"
    folders = set()
    for folder, place in _staged(new) if new.is_dir() else ():
        target = entries / place
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        if target.exists():
            aside = old / place
            aside.parent.mkdir(parents=True, exist_ok=True)
            if aside.exists():
                shutil.rmtree(aside)
            target.rename(aside)
        folder.rename(target)
    if _FLUSHES_ALL:
        os.sync()
    for folder in folders:
        journal.flush_folder(folder)
    # Without the intent, the next one to come clears this folder; so it goes first.
    (work / journal.INTENT).unlink(missing_ok=True)
    journal.flush_folder(work)
    shutil.rmtree(work, ignore_errors=True)
