"""Add an entry, or a new version of one, to a knowledge base."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kb.config import Root
from kb.errors import ConfigError, EntryChangedError, EntryFormatError, EntryNotFoundError
from kb.store import content, files, journal, layout
from kb.store.files import StoredEntry


@dataclass(frozen=True)
class Added:
    """What an addition did."""

    id: str
    version: int
    digest: str
    state: Literal["added", "updated", "unchanged"]

    @property
    def reference(self) -> str:
        """``ID@VERSION``."""
        return f"{self.id}@{self.version}"


def _id_for(folder: Path, asked: str | None) -> str:
    if asked is not None:
        return str(layout.parse_id(asked))
    guessed = layout.guess_id(folder)
    if guessed is None:
        raise EntryFormatError(
            f"{folder}: the path does not end in KIND/TOPIC/SLUG, so the id is not known",
            hint="give the id: --id kernel/OPERATOR/SLUG",
        )
    return guessed


def _evidence(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found = {}
    for name in names:
        try:
            body = content.read_file(folder / name, content.MAX_FILE_BYTES)
            files.strict_json(body)
        except EntryFormatError as error:
            raise EntryFormatError(f"{folder / name}: {error.message}", hint=f"mend {folder / name}") from error
        except ValueError as error:
            message = f"{folder / name}: expected JSON, found: {error}"
            raise EntryFormatError(message, hint=f"mend {folder / name}") from error
        found[name] = body
    return found


def _kept_evidence(folder: Path, new: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the records and outcomes that are there already: evidence is only ever added to."""
    kept = {}
    for name in content.read(folder).evidence:
        body = (folder / name).read_bytes()
        if name in new and new[name] != body:
            raise EntryChangedError(
                f"{name}: a record that is there already may not change", hint=f"remove {name} from the folder to add"
            )
        kept[name] = body
    return kept


def _refuse_stale(new: StoredEntry, old: StoredEntry) -> None:
    """Refuse what would put other content under a version that is taken."""
    if new.file.version < old.file.version:
        raise EntryChangedError(
            f"{new.id}: version {old.file.version} is there already, found version {new.file.version}",
            hint=f"set version = {old.file.version + 1} in entry.toml",
        )
    if new.digest != old.digest and new.file.version == old.file.version:
        raise EntryChangedError(
            f"{new.id}: what runs differs from version {old.file.version}, which is there already",
            hint=f"set version = {old.file.version + 1} in entry.toml",
        )


def _refuse_twin(root: Root, name: str) -> None:
    """Refuse an id that differs from one that is taken in nothing a person or a file system can tell apart."""
    for taken in layout.entry_ids(root.entries):
        if taken != name and layout.same_name(taken) == layout.same_name(name):
            raise EntryFormatError(f"id '{name}': {taken} has the same name", hint=f"--id {taken}, or another name")


def add(folder: Path, entry_id: str | None, root: Root, *, wait_s: float = 60.0) -> Added:
    """Add an entry; when this returns, it is on disk whatever happens next.

    Args:
        folder: A folder with ``entry.toml``, ``README.md`` and the candidate's files; it is copied.
        entry_id: Its id; None to take it from the last three parts of the folder's path.
        root: The knowledge base to add to.
        wait_s: How long to wait for another one who adds, in seconds.

    Returns:
        Id, version, and whether anything changed.

    Raises:
        ConfigError: The knowledge base is the one that came with the installation.
        EntryFormatError: Something breaks the format.
        EntryChangedError: What runs changed and the version did not.
        StoreError: The knowledge base cannot be written.
    """
    if root.packaged:
        raise ConfigError(
            "the starter entries of the installation are never written to", hint="kb init DIR, then kb add --root DIR"
        )
    if not folder.is_dir():
        raise EntryNotFoundError(f"no folder {folder}", hint="kb add DIR, where DIR holds an entry.toml")
    source = folder.resolve()
    name = _id_for(source, entry_id)
    new = files.read(source, name, shown=str(folder))
    evidence = _evidence(source, new.evidence)
    target = layout.folder_of(root.entries, name)
    if not root.entries.is_dir():
        raise ConfigError(f"no folder {root.entries}", hint=f"kb init {root.path}")
    if target.resolve() == source:
        return Added(name, new.file.version, new.digest, "unchanged")
    with journal.adding(root.entries, wait_s=wait_s) as put:
        if not target.exists():
            _refuse_twin(root, name)
            put(name, {**new.files, **evidence})
            return Added(name, new.file.version, new.digest, "added")
        old, faults = files.inspect(content.read(target), name)
        if old is None:
            raise files.format_error(str(target), faults)
        _refuse_stale(new, old)
        kept = _kept_evidence(target, evidence)
        if dict(new.files) == dict(old.files) and {*evidence} <= {*kept}:
            return Added(name, old.file.version, old.digest, "unchanged")
        put(name, {**new.files, **kept, **evidence})
        return Added(name, new.file.version, new.digest, "updated")
