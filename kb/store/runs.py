"""Journals of long runs: one file a run, a line appended and synced for each step, so that a kill loses at most one.

Lines are JSON objects. The first says what the run is to do; ``{"ended": true}`` says that it is done. A last line that
a kill cut off is dropped when the run is taken up. Standard library only.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kb.errors import StoreError

FOLDER = "runs"
KEPT = 50
"""Journals that are kept; older ones go when a run begins."""
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}")


class Run:
    """One run's journal."""

    def __init__(self, file: Path, lines: list[dict[str, Any]], whole_bytes: int) -> None:
        self.file = file
        self.lines: list[dict[str, Any]] = lines
        """All lines so far, the head first."""
        self._whole_bytes = whole_bytes

    @property
    def id(self) -> str:
        """When it began, and four random digits."""
        return self.file.stem

    @property
    def head(self) -> Mapping[str, Any]:
        """What it is to do."""
        return self.lines[0]

    @property
    def ended(self) -> bool:
        """True if it came to its end."""
        return bool(self.lines[-1].get("ended"))

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line; when this returns, it survives a kill and a power cut.

        Raises:
            StoreError: It cannot be written.
        """
        body = _encoded(line)
        try:
            with self.file.open("r+b") as stream:
                # What a kill left half-written behind the last whole line goes.
                stream.truncate(self._whole_bytes)
                stream.seek(self._whole_bytes)
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise _error(self.file, error) from error
        self._whole_bytes += len(body)
        self.lines.append(dict(line))


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _error(file: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {file}: {error.strerror}", hint="check free space and permissions")


def begin(folder: Path, head: Mapping[str, Any]) -> Run:
    """Make the journal of a new run.

    Args:
        folder: Folder of derived files; journals lie in ``runs/`` below it.
        head: What the run is to do.

    Raises:
        StoreError: It cannot be written.
    """
    place = folder / FOLDER
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    body = _encoded(head)
    try:
        place.mkdir(parents=True, exist_ok=True)
        staged = place / f".{name}.new"
        with staged.open("xb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        file = place / f"{name}.jsonl"
        staged.replace(file)
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for old in sorted(place.glob("*.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _error(place, error) from error
    return Run(file, [dict(head)], len(body))


def read(file: Path) -> Run | None:
    """Read a journal up to its last whole line; None if not even its head is whole."""
    lines: list[dict[str, Any]] = []
    whole = 0
    try:
        body = file.read_bytes()
    except OSError:
        return None
    for part in body.splitlines(keepends=True):
        try:
            line = json.loads(part) if part.endswith(b"\n") else None
        except ValueError:
            line = None
        if not isinstance(line, dict):
            break
        lines.append(line)
        whole += len(part)
    return Run(file, lines, whole) if lines else None


def all_runs(folder: Path) -> Iterator[Run]:
    """Yield the journals below a folder of derived files, newest first."""
    place = folder / FOLDER
    names: Sequence[Path] = sorted(place.glob("*.jsonl"), reverse=True) if place.is_dir() else ()
    for file in names:
        if _ID.fullmatch(file.stem):
            run = read(file)
            if run is not None:
                yield run
