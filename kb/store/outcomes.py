"""Outcomes on disk: one append-only file each, beside the entry that was used."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from kb.errors import EntryFormatError, StoreError
from kb.models.claims import Strict
from kb.store import content, files, layout, records

HINT = "outcomes are never edited: restore the file from git"

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[a-z]+-[0-9a-f]{12}\.json")


class Used(Strict):
    """An entry version."""

    id: str = Field(min_length=1, max_length=200)
    version: int = Field(ge=1)
    digest: _Sha256


class Borne(Strict):
    """The judge's record that bears a claim out."""

    path: str = Field(min_length=1, max_length=400)
    """Below ``entries/``."""
    sha256: _Sha256
    """Of the record, its signature included."""


class OutcomeFile(Strict):
    """All of an outcome's file."""

    schema_: Literal[1] = Field(alias="schema")
    date: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    """UTC, when it was reported."""
    entry: Used
    target: Used
    result: Literal["won", "neutral", "lost", "not_applied"]
    record: Borne | None
    speedup: float | None = Field(gt=0)
    """Geometric mean over the record's timings; None where nothing was timed."""
    device: str | None = Field(max_length=120)
    """Of the record."""
    note: str | None = Field(max_length=400)

    @property
    def told(self) -> dict[str, object]:
        """What is reported, without the day: the same told twice is one outcome."""
        return self.model_dump(mode="json", by_alias=True, exclude={"date"})


@dataclass(frozen=True)
class FiledOutcome:
    """One outcome as it lies on disk."""

    entry_id: str
    name: str
    """File name below ``outcomes/``."""
    file: OutcomeFile

    @property
    def path(self) -> str:
        """Path below ``entries/``."""
        return f"{self.entry_id}/{layout.OUTCOMES}/{self.name}"


def written(file: OutcomeFile) -> bytes:
    """Return the bytes of the file: sorted keys, two spaces, final newline."""
    made = file.model_dump(mode="json", by_alias=True)
    return (json.dumps(made, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def file_name(file: OutcomeFile) -> str:
    """Return ``<utc-date>-<result>-<12 hex of the file's sha256>.json``."""
    return f"{file.date}-{file.result.replace('_', '')}-{hashlib.sha256(written(file)).hexdigest()[:12]}.json"


def read_one(entries: Path, entry_id: str, name: str) -> FiledOutcome:
    """Read one outcome.

    Args:
        entries: Folder of the entries.
        entry_id: The entry that was used.
        name: File name below ``outcomes/``.

    Raises:
        EntryFormatError: It is no outcome, of another entry, or was edited since it was written.
    """
    path = layout.folder_of(entries, entry_id) / layout.OUTCOMES / name
    shown = f"{entry_id}/{layout.OUTCOMES}/{layout.printable(name)}"
    try:
        body = content.read_file(path, content.MAX_FILE_BYTES)
        file = OutcomeFile.model_validate(files.strict_json(body))
    except (EntryFormatError, ValueError, ValidationError) as error:
        raise EntryFormatError(f"{shown}: no valid outcome: {str(error).splitlines()[0]}", hint=HINT) from error
    if not _NAME.fullmatch(name) or name != file_name(file) or body != written(file):
        raise EntryFormatError(f"{shown}: its name is not its content's, which is {file_name(file)}", hint=HINT)
    if file.entry.id != entry_id:
        raise EntryFormatError(f"{shown}: an outcome of {file.entry.id}", hint=HINT)
    return FiledOutcome(entry_id, name, file)


def read(entries: Path, entry_id: str) -> Iterator[FiledOutcome]:
    """Yield the outcomes of an entry, by name.

    Raises:
        EntryFormatError: A file is none.
    """
    folder = layout.folder_of(entries, entry_id) / layout.OUTCOMES
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        yield read_one(entries, entry_id, path.name)


def append(entries: Path, file: OutcomeFile) -> tuple[FiledOutcome, bool]:
    """File an outcome unless the same was filed before; when this returns, it survives a crash.

    Args:
        entries: Folder of the entries.
        file: What was reported.

    Returns:
        It as it stands, and whether it is new.

    Raises:
        EntryFormatError: A file that lies there is no outcome.
        StoreError: It cannot be written.
    """
    name = file_name(file)
    folder = layout.folder_of(entries, file.entry.id) / layout.OUTCOMES
    with records.writing(entries):
        for one in read(entries, file.entry.id):
            if one.file.told == file.told:
                return one, False
        try:
            folder.mkdir(exist_ok=True)
            records.write_durably(folder, name, written(file))
        except OSError as error:
            message = f"cannot file {folder / name}: {error.strerror}"
            raise StoreError(message, hint="check space and permissions") from error
    return FiledOutcome(file.entry.id, name, file), True
