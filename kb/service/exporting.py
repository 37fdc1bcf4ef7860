"""Write entries in the formats of other projects."""

import tempfile
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kb.config import Root
from kb.errors import ConfigError, StoreError
from kb.importers.base import Exported, Exporter, Filed, Skipped, sha256
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.registry import exporter
from kb.service.flashinfer_kernels import Kernels
from kb.store import files, layout


@dataclass(frozen=True)
class Export:
    """What an export wrote."""

    folder: str
    files: tuple[str, ...]
    """Paths below the folder, sorted."""
    left_out: tuple[Skipped, ...]
    """Entries, by id, with the reason; ``refused`` is False where it was written, with something to be said."""


class Own(Protocol):
    """Writes entries of ours that never came from the format."""

    def holds(self, entry: Filed) -> bool:
        """Tell whether an entry can be written."""

    def written(self, entry: Filed, made: Container[str]) -> Iterator[Exported | Skipped]:
        """Write one entry that :meth:`holds` lets pass.

        Args:
            entry: The entry.
            made: Paths that are written already.
        """


_OWN: dict[str, type[Own]] = {"flashinfer-trace": Kernels}
"""Format → what writes our own entries in it."""


class _Staging:
    """A folder that gets its name only when it is complete; bodies are not held, their digests are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: dict[str, str] = {}
        self.left_out: list[Skipped] = []

    def take(self, one: Exported | Skipped) -> None:
        """Write one file, or note why there is none.

        Raises:
            ConfigError: Its path may not be written, or is taken by other bytes.
        """
        if isinstance(one, Skipped):
            self.left_out.append(one)
            return
        fault = unsafe_path(one.path) or windows_fault(one.path)
        digest = sha256(one.body)
        if fault is not None or self.made.get(one.path, digest) != digest:
            raise ConfigError(f"cannot write {one.path}: {fault or 'two entries would be this one file'}")
        self.made[one.path] = digest
        place = self._folder / one.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(one.body)


def _filed(root: Root, ids: Iterable[str]) -> Iterator[Filed]:
    for name in ids:
        stored = files.read(layout.folder_of(root.entries, name), name)
        yield Filed(stored.id, stored.file.version, stored.facts, stored.readme, stored.files)


def export(root: Root, form: str, ids: Sequence[str], output: Path) -> Export:
    """Write entries to a folder; nothing is written if any path may not be.

    One entry is held at a time: files go into a folder beside the wanted one, which gets its name at the end.

    Args:
        root: The knowledge base.
        form: Name of a format that can be written.
        ids: Entries; empty for all that the format can hold.
        output: A folder that does not exist yet, or is empty.

    Raises:
        ImporterError: The format is unknown, or can only be read.
        ConfigError: The folder is not empty, or two entries would be one file.
        EntryFormatError: An id is none, or its entry is broken.
        StoreError: The folder cannot be written.
    """
    writer = exporter(form)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} is there already", hint="-o a folder that does not exist")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as folder:
            whole = Path(folder) / "export"
            whole.mkdir()
            staging = _Staging(whole)
            _write(root, writer, _OWN[form]() if form in _OWN else None, ids, staging)
            if output.exists():
                output.rmdir()
            whole.replace(output)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    return Export(str(output), tuple(sorted(staging.made)), tuple(staging.left_out))


def _write(root: Root, writer: Exporter, own: Own | None, ids: Sequence[str], staging: _Staging) -> None:
    """Write what came from the format, then what is ours."""
    ours: list[str] = []

    def foreign() -> Iterator[Filed]:
        for entry in _filed(root, ids or tuple(layout.entry_ids(root.entries))):
            if own is not None and not writer.can_export(entry) and own.holds(entry):
                ours.append(entry.id)
            elif ids or writer.can_export(entry):
                yield entry

    for one in writer.export(foreign()):
        staging.take(one)
    if own is not None:
        for entry in _filed(root, ours):
            for one in own.written(entry, staging.made):
                staging.take(one)
