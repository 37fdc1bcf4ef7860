"""Records on disk: one append-only file each, found by entry, filed so that nothing acknowledged is lost."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kb.errors import EntryFormatError, StoreError
from kb.models.record import Record, written
from kb.store import content, files, layout
from kb.store.locks import locked

SAMPLES = "samples-"
"""Begins the names of side files, which hold all samples of a record's timing."""

MAX_SAMPLES_BYTES = 32 << 20


@dataclass(frozen=True)
class Filed:
    """One record as it lies on disk."""

    entry_id: str
    name: str
    """File name below ``records/``."""
    raw: dict[str, Any]
    record: Record

    @property
    def path(self) -> str:
        """Path below ``entries/``."""
        return f"{self.entry_id}/{layout.RECORDS}/{self.name}"


def file_name(body: bytes, *, created_utc: str, arch: str) -> str:
    """Return ``<utc-date>-<arch>-<12 hex of the file's sha256>.json``."""
    return f"{created_utc[:10]}-{arch}-{hashlib.sha256(body).hexdigest()[:12]}.json"


def read(entries: Path, entry_id: str) -> Iterator[Filed]:
    """Yield the records of an entry, by name.

    Raises:
        EntryFormatError: A file is no record, or its name is not its digest's.
    """
    folder = layout.folder_of(entries, entry_id) / layout.RECORDS
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith(SAMPLES):
            continue
        body = content.read_file(path, content.MAX_FILE_BYTES)
        yield _parse(entry_id, path, body)


def read_one(entries: Path, entry_id: str, name: str) -> Filed:
    """Read one record of an entry.

    Args:
        entries: Folder of the entries.
        entry_id: The entry.
        name: File name below ``records/``.

    Raises:
        EntryFormatError: It is no record, or its name is not its content's.
    """
    path = layout.folder_of(entries, entry_id) / layout.RECORDS / name
    return _parse(entry_id, path, content.read_file(path, content.MAX_FILE_BYTES))


def _parse(entry_id: str, path: Path, body: bytes) -> Filed:
    hint = "records are never edited: restore the file from git"
    try:
        raw = files.strict_json(body)
        record = Record.model_validate(raw)
    except (ValueError, ValidationError) as error:
        raise EntryFormatError(f"{path}: no valid record: {str(error).splitlines()[0]}", hint=hint) from error
    if not isinstance(raw, dict) or body != written(raw):
        raise EntryFormatError(f"{path}: expected sorted keys, two spaces and a final newline", hint=hint)
    expected = file_name(body, created_utc=record.created_utc, arch=str(record.device.get("arch")))
    if path.name != expected:
        raise EntryFormatError(f"{path}: its name is not its content's, which is {expected}", hint=hint)
    if record.entry.id != entry_id:
        raise EntryFormatError(f"{path}: a record of {record.entry.id}", hint=hint)
    return Filed(entry_id, path.name, raw, record)


@contextmanager
def writing(entries: Path) -> Iterator[None]:
    """Hold the one lock under which records are chained and filed."""
    folder = entries / ".kb"
    folder.mkdir(exist_ok=True)
    with locked(folder / "records.lock", wait_s=60.0):
        yield


def samples_name(sha256: str) -> str:
    """Return the name of a side file by the digest of its bytes."""
    return f"{SAMPLES}{sha256[:12]}.json"


def read_samples(entries: Path, entry_id: str, sha256: str) -> bytes:
    """Read the side file of a record.

    Args:
        entries: Folder of the entries.
        entry_id: The entry.
        sha256: ``samples_sha256`` of the record.

    Raises:
        EntryFormatError: It is missing, or its bytes have another digest.
    """
    path = layout.folder_of(entries, entry_id) / layout.RECORDS / samples_name(sha256)
    hint = "side files are never edited: restore it from git"
    try:
        body = content.read_file(path, MAX_SAMPLES_BYTES)
    except EntryFormatError as error:
        raise EntryFormatError(f"{path}: {error.message}", hint=hint) from error
    if hashlib.sha256(body).hexdigest() != sha256:
        raise EntryFormatError(f"{path}: its bytes are not those that the record names", hint=hint)
    return body


def append(entries: Path, raw: dict[str, Any], *, samples: bytes | None = None) -> Filed:
    """File a record; when this returns, it survives a crash. The caller holds ``writing``.

    Args:
        entries: Folder of the entries.
        raw: The signed record.
        samples: Bytes of its side file, which is written first: a record never names one that is not there.

    Raises:
        StoreError: It cannot be written.
    """
    body = written(raw)
    record = Record.model_validate(json.loads(body))
    folder = layout.folder_of(entries, record.entry.id) / layout.RECORDS
    name = file_name(body, created_utc=record.created_utc, arch=str(record.device["arch"]))
    try:
        folder.mkdir(exist_ok=True)
        if samples is not None:
            write_durably(folder, samples_name(str(record.samples_sha256)), samples)
        write_durably(folder, name, body)
    except OSError as error:
        raise StoreError(
            f"cannot file {folder / name}: {error.strerror}", hint="check space and permissions"
        ) from error
    return Filed(record.entry.id, name, raw, record)


def write_durably(folder: Path, name: str, body: bytes) -> None:
    """Write a file so that it is there whole or not at all, and stays."""
    staged = folder / f".{name}.new"
    with staged.open("wb") as stream:
        stream.write(body)
        stream.flush()
        os.fsync(stream.fileno())
    staged.replace(folder / name)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
