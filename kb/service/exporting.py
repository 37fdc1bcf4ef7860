"""Write entries in the formats of other projects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.config import Root
from kb.errors import ConfigError
from kb.importers.base import Exported, Filed, Skipped
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.registry import exporter
from kb.store import files, layout


@dataclass(frozen=True)
class Export:
    """What an export wrote."""

    folder: str
    files: tuple[str, ...]
    """Paths below the folder, sorted."""
    left_out: tuple[Skipped, ...]
    """Entries, by id, with the reason."""


def _filed(root: Root, ids: Sequence[str]) -> Iterator[Filed]:
    for name in ids or tuple(layout.entry_ids(root.entries)):
        stored = files.read(layout.folder_of(root.entries, name), name)
        yield Filed(stored.id, stored.file.version, stored.facts, stored.readme, stored.files)


def export(root: Root, form: str, ids: Sequence[str], output: Path) -> Export:
    """Write entries to a folder; nothing is written if any path may not be.

    Args:
        root: The knowledge base.
        form: Name of a format that can be written.
        ids: Entries; empty for all that the format can hold.
        output: A folder that does not exist yet, or is empty.

    Raises:
        ImporterError: The format is unknown, or can only be read.
        ConfigError: The folder is not empty, or two entries would be one file.
        EntryFormatError: An id is none, or its entry is broken.
    """
    writer = exporter(form)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} is there already", hint="-o a folder that does not exist")
    made: dict[str, bytes] = {}
    left_out: list[Skipped] = []
    chosen = (one for one in _filed(root, ids) if ids or writer.can_export(one))
    for one in writer.export(chosen):
        if isinstance(one, Skipped):
            left_out.append(one)
        else:
            _take(one, made)
    for path, body in made.items():
        place = output / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    return Export(str(output), tuple(sorted(made)), tuple(left_out))


def _take(one: Exported, made: dict[str, bytes]) -> None:
    fault = unsafe_path(one.path) or windows_fault(one.path)
    if fault is not None or made.get(one.path, one.body) != one.body:
        raise ConfigError(f"cannot write {one.path}: {fault or 'two entries would be this one file'}")
    made[one.path] = one.body
