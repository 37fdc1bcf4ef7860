"""Reads the raw bytes of an entry's folder, refusing whatever does not belong in one. Standard library only."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kb.errors import EntryFormatError
from kb.store import layout

MAX_FILE_BYTES = 1 << 20
MAX_README_BYTES = 64 << 10
MAX_FACTS_BYTES = 64 << 10
MAX_FILES = 200


@dataclass(frozen=True)
class Content:
    """The bytes of one entry, by name relative to its folder, and what was refused."""

    files: Mapping[str, bytes]
    """Candidate files, facts and readme; records and outcomes are not read here."""
    evidence: tuple[str, ...]
    """Names of records and outcomes, sorted."""
    faults: tuple[str, ...]
    """One line each: file, what was expected, what was found."""

    @property
    def digest(self) -> str:
        """Digest of all bytes read and all names: decides whether the catalogue has this content already."""
        state = hashlib.sha256(b"kb-content-1")
        for name in sorted(self.files):
            body = self.files[name]
            state.update(f"{len(name.encode())}:{name}{len(body)}:".encode())
            state.update(body)
        for name in self.evidence:
            state.update(f"{len(name.encode())}:{name}".encode())
        return state.hexdigest()


def _walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    stack = [""]
    while stack:
        prefix = stack.pop()
        with os.scandir(folder / prefix) as listing:
            for item in sorted(listing, key=lambda each: each.name):
                if item.name.startswith(".") or item.name == "__pycache__":
                    continue
                name = prefix + item.name
                # A folder that lies too deep is handed on, so that its name is refused and nothing in it goes unseen.
                if item.is_dir(follow_symlinks=False) and name.count("/") < layout.MAX_DEPTH:
                    stack.append(name + "/")
                else:
                    yield name, item


def _limit(name: str) -> int:
    return {layout.FACTS: MAX_FACTS_BYTES, layout.README: MAX_README_BYTES}.get(name, MAX_FILE_BYTES)


def read_file(path: Path, limit: int) -> bytes:
    """Read one regular file, never through a link and never more than ``limit`` bytes.

    Args:
        path: The file.
        limit: Most bytes that it may have.

    Raises:
        EntryFormatError: It is no regular file, too large or unreadable; the message does not name it.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        # O_NOFOLLOW and O_NONBLOCK: between listing and opening the file can become a link or a pipe.
        handle = os.open(path, flags)
    except OSError as error:
        raise EntryFormatError(f"cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise EntryFormatError("expected a regular file, found a device, pipe or folder")
            body = file.read(limit + 1)
        except OSError as error:
            raise EntryFormatError(f"cannot be read: {error.strerror}") from error
    if len(body) > limit:
        size = path.lstat().st_size
        raise EntryFormatError(f"expected at most {limit:,} bytes, found {max(size, limit + 1):,}")
    return body


def _text_fault(body: bytes) -> str | None:
    if b"\0" in body:
        return f"expected text, found a binary file (NUL byte at {body.index(0)})"
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        return f"expected UTF-8, found byte 0x{body[error.start]:02x} at line {line}"
    return None


def _node_fault(item: os.DirEntry[str]) -> str | None:
    if item.is_symlink():
        return "expected a file of its own, found a symbolic link"
    if item.is_dir(follow_symlinks=False):
        return f"expected at most {layout.MAX_DEPTH} folders inside one another"
    mode = item.stat(follow_symlinks=False).st_mode
    return None if stat.S_ISREG(mode) else "expected a regular file, found a device, pipe or socket"


def _take(name: str, item: os.DirEntry[str], files: dict[str, bytes]) -> str | None:
    try:
        fault = _node_fault(item) or layout.file_fault(name)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if fault is not None:
        return fault
    if layout.is_evidence(name):
        return None
    try:
        body = read_file(Path(item.path), _limit(name))
    except EntryFormatError as error:
        return error.message
    fault = _text_fault(body)
    if fault is None:
        files[name] = body
    return fault


def read(folder: Path) -> Content:
    """Read an entry's folder; whatever is refused is said, not raised.

    Args:
        folder: The folder of one entry.

    Returns:
        Its bytes. ``faults`` is empty only if every file may belong to an entry; the facts themselves are not read.
    """
    files: dict[str, bytes] = {}
    evidence: list[str] = []
    faults: list[str] = []
    if folder.is_symlink():
        return Content({}, (), ("expected a folder, found a symbolic link",))
    spellings: dict[str, str] = {}
    try:
        for name, item in _walk(folder):
            if len(files) >= MAX_FILES and not layout.is_evidence(name):
                faults.append(f"expected at most {MAX_FILES} files")
                break
            first = spellings.setdefault(name.casefold(), name)
            fault = _take(name, item, files) if first == name else f"the same name as {first} on many systems"
            if fault is not None:
                faults.append(f"{layout.printable(name)}: {fault}")
            elif layout.is_evidence(name):
                evidence.append(name)
    except OSError as error:
        faults.append(f"cannot be listed: {error.strerror}")
    faults.extend(
        f"{name}: the file is missing" for name in (layout.FACTS, layout.README) if _lacks(name, files, faults)
    )
    return Content(files, tuple(sorted(evidence)), tuple(faults))


def _lacks(name: str, files: Mapping[str, bytes], faults: list[str]) -> bool:
    return name not in files and not any(fault.startswith(f"{name}: ") for fault in faults)
