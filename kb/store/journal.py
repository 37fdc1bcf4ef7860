"""Puts entries in place so that neither a crash nor a second writer loses anything. Standard library only.

A new version is written and flushed in a hidden folder of the same file system, an intent is noted, and only then are
folders renamed. Whoever opens the knowledge base next completes what an intent promises and clears what has none.
"""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kb.errors import StoreError
from kb.store import layout
from kb.store.locks import locked

HIDDEN = ".kb"
"""Folder below ``entries/`` that holds what is on its way in."""
INTENT = "intent.json"
"""In the folder of one addition: it is complete, and has to appear."""


def _hidden(entries: Path) -> Path:
    return entries / HIDDEN


def _lock_file(entries: Path) -> Path:
    return _hidden(entries) / "adding.lock"


def stage_of(entries: Path) -> Path:
    """Return the folder that holds one folder an addition."""
    return _hidden(entries) / "stage"


def flush_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def write_flushed(path: Path, body: bytes) -> None:
    """Write a new file and wait until it is on disk."""
    with path.open("xb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _make_folders(folder: Path, *, below: Path) -> None:
    missing = []
    while folder != below and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        flush_folder(each.parent)


def _write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    folders = {folder}
    for name, body in files.items():
        path = folder / name
        _make_folders(path.parent, below=folder)
        folders.add(path.parent)
        write_flushed(path, body)
    for each in sorted(folders, reverse=True):
        flush_folder(each)


def store_error(error: OSError, doing: str) -> StoreError:
    """Return the error for a folder that cannot be written.

    Args:
        error: What the system said.
        doing: What was to be done, as ``add X``.
    """
    hint = "check free space and permissions; nothing was changed"
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(f"cannot {doing}: {error.strerror}{where}", hint=hint)


def _roll_forward(entries: Path, work: Path, entry_id: str) -> None:
    """Do what the intent says; every step may have been done before."""
    target = layout.folder_of(entries, entry_id)
    new, old = work / "new", work / "old"
    if new.is_dir():
        _make_folders(target.parent, below=entries)
        if target.exists():
            target.rename(old)
            flush_folder(target.parent)
        new.rename(target)
        flush_folder(target.parent)
        flush_folder(work)
    # Without the intent, the next one to come clears this folder; so it goes first.
    (work / INTENT).unlink(missing_ok=True)
    flush_folder(work)
    shutil.rmtree(work, ignore_errors=True)


def _recover(entries: Path) -> int:
    done = 0
    stage = stage_of(entries)
    if not stage.is_dir():
        return 0
    for work in sorted(stage.iterdir()):
        intent = work / INTENT
        if intent.is_file():
            try:
                said = json.loads(intent.read_text(encoding="utf-8"))
                entry_id = None if "bulk" in said else str(said["id"])
            except (ValueError, KeyError, TypeError) as error:
                hint = f"look into {work}, put its files back by hand, then remove it"
                raise StoreError(
                    f"{intent}: expected an intent to add an entry, found something else", hint=hint
                ) from error
            if entry_id is None:
                from kb.store import bulk

                bulk.roll_forward(entries, work)
            else:
                _roll_forward(entries, work, entry_id)
            done += 1
        elif work.is_dir():
            shutil.rmtree(work, ignore_errors=True)
        else:
            work.unlink(missing_ok=True)
    return done


def is_unfinished(entries: Path) -> bool:
    """Tell whether an addition was cut off, or goes on right now; costs one look at a folder."""
    try:
        with os.scandir(stage_of(entries)) as listing:
            return any(True for _ in listing)
    except OSError:
        return False


def recover(entries: Path, *, wait_s: float = 60.0) -> int:
    """Complete additions that a crash cut off, and clear what they left.

    Args:
        entries: The ``entries/`` folder.
        wait_s: How long to wait for an addition that goes on right now, in seconds.

    Returns:
        How many were completed.

    Raises:
        StoreError: The folder cannot be written, or its lock is held for too long.
    """
    # Who may not write here can neither have begun an addition nor end one: reading goes on without it.
    if not is_unfinished(entries) or not os.access(_hidden(entries), os.W_OK):
        return 0
    with locked(_lock_file(entries), wait_s=wait_s):
        try:
            return _recover(entries)
        except OSError as error:
            raise store_error(error, "complete an addition that was cut off") from error


@contextmanager
def adding(entries: Path, *, wait_s: float = 60.0) -> Iterator[Callable[[str, Mapping[str, bytes]], None]]:
    """Hold the right to add; yields the function that puts an entry in place.

    What is read of an existing entry inside the block is still true when the new version goes in.

    Args:
        entries: The ``entries/`` folder.
        wait_s: How long to wait for another one who adds, in seconds.

    Raises:
        StoreError: The folder cannot be written, or its lock is held for too long.
    """
    hidden = _hidden(entries)
    try:
        hidden.mkdir(exist_ok=True)
        ignore = hidden / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise store_error(error, f"write below {entries}") from error
    with locked(_lock_file(entries), wait_s=wait_s):
        try:
            _recover(entries)
        except OSError as error:
            raise store_error(error, "complete an addition that was cut off") from error
        yield lambda entry_id, files: _put(entries, entry_id, files)


def _put(entries: Path, entry_id: str, files: Mapping[str, bytes]) -> None:
    target = layout.folder_of(entries, entry_id)
    work = stage_of(entries) / secrets.token_hex(8)
    try:
        work.mkdir(parents=True)
        _write_tree(work / "new", files)
        _make_folders(target.parent, below=entries)
        # The intent appears under its name only when it is complete, and only after everything it promises.
        draft = work / "intent.draft"
        write_flushed(draft, json.dumps({"id": entry_id}).encode("utf-8"))
        flush_folder(work)
        draft.rename(work / INTENT)
        for folder in (work, work.parent, entries / HIDDEN):
            flush_folder(folder)
        _roll_forward(entries, work, entry_id)
    except OSError as error:
        _roll_back(work, target)
        raise store_error(error, f"add {entry_id}") from error


def _roll_back(work: Path, target: Path) -> None:
    """Undo an addition that nobody was told of, so that it does not come up again at every later command."""
    old = work / "old"
    if old.is_dir() and not target.exists():
        old.rename(target)
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def reading(entries: Path, *, wait_s: float = 60.0) -> Iterator[None]:
    """Keep additions out while many files are read; costs nothing where nobody ever added.

    Args:
        entries: The ``entries/`` folder.
        wait_s: How long to wait for one who adds, in seconds.

    Raises:
        StoreError: The lock is held for too long.
    """
    lock = _lock_file(entries)
    if not lock.is_file() or not os.access(lock, os.W_OK):
        yield
        return
    with locked(lock, shared=True, wait_s=wait_s):
        yield
