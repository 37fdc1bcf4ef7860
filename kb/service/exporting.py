"""Write entries in the formats of other projects."""

import difflib
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kb.config import Root
from kb.errors import ConfigError, EntryNotFoundError, SourceFormatError, StoreError
from kb.importers.base import Exported, Exporter, Filed, Skipped, sha256
from kb.importers.carried import Carried, carried_of, manifest_of, row_of
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.registry import exporter
from kb.importers.tree import MANIFEST
from kb.models.vocabulary import ENTRY_ID, EVIDENCE
from kb.service import searching
from kb.service.flashinfer_kernels import Kernels
from kb.service.hf_packages import Packages
from kb.service.openevolve_population import Population
from kb.store import files, layout


@dataclass(frozen=True)
class Export:
    """What an export wrote."""

    folder: str
    files: tuple[str, ...]
    """Paths below the folder, sorted; all but ``manifest``."""
    left_out: tuple[Skipped, ...]
    """Entries, by id, with the reason; ``refused`` is False where it was written, with something to be said."""
    manifest: str
    """Name of the file beside them that says the license and the origin of each."""


Progress = Callable[[str, int, int], None]
"""Called with the stage, how much is done, and the total."""


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


_OWN: Mapping[str, Callable[[Root, Mapping[str, Mapping[str, Any]]], Own]] = {
    "flashinfer-trace": Kernels,
    "openevolve": Population,
    "hf-kernels": Packages,
}
"""Format → what writes our own entries in it; takes the knowledge base and what stands for them."""


@dataclass(frozen=True)
class Choice:
    """Which entries to write, where no ids are named."""

    operator: str | None = None
    """Entries of this operator that work; the best proven first."""
    top: int | None = None
    """Most of them."""
    device: str | None = None
    """Device whose evidence counts; None for any."""


class _Staging:
    """A folder that gets its name only when it is complete; bodies are not held, their digests are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: dict[str, str] = {}
        self.left_out: list[Skipped] = []
        self.carried: dict[str, Carried] = {}
        """Entry → what the manifest says of its files."""
        self._rows: dict[str, Mapping[str, Any]] = {}

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
        carried = Carried(one.license) if one.license is not None else self.carried.get(one.entry or "")
        if carried is not None:
            self._rows.setdefault(one.path, row_of(one, carried))

    def close(self) -> None:
        """Write what the files cannot say of themselves: their licenses, and where they come from."""
        made = manifest_of(self._rows.values())
        (self._folder / made.path).write_bytes(made.body)


def _filed(root: Root, ids: Iterable[str]) -> Iterator[Filed]:
    for name in ids:
        if ENTRY_ID.fullmatch(name) and not layout.folder_of(root.entries, name).is_dir():
            near = difflib.get_close_matches(name, list(layout.entry_ids(root.entries)), 3)
            hint = f"did you mean {', '.join(near)}?" if near else "kb list"
            raise EntryNotFoundError(f"no entry has the id {name!r}", hint=hint)
        stored = files.read(layout.folder_of(root.entries, name), name)
        yield Filed(stored.id, stored.file.version, stored.facts, stored.readme, stored.files)


def _standing(root: Root, choice: Choice) -> dict[str, dict[str, Any]]:
    """Return what stands for the chosen entries: level of evidence, then gain, then id."""
    filters = searching.Filters(operator=choice.operator, device=choice.device, outcome="works")
    rows = searching.list_root(root, filters, figures=True)

    def rank(row: Mapping[str, Any]) -> tuple[int, float, str]:
        return -EVIDENCE.index(row["evidence"]), -((row.get("best") or {}).get("speedup") or 0.0), row["id"]

    able = sorted((row for row in rows if row["withdrawn"] is None and row["kind"] != "technique"), key=rank)
    return {row["id"]: row for row in able[: choice.top]}


def export(
    root: Root,
    form: str,
    ids: Sequence[str],
    output: Path,
    *,
    choice: Choice | None = None,
    progress: Progress | None = None,
) -> Export:
    """Write entries to a folder; nothing is written if any path may not be, or if there is nothing to write.

    One entry is held at a time: files go into a folder beside the wanted one, which gets its name at the end.

    Args:
        root: The knowledge base.
        form: Name of a format that can be written.
        ids: Entries; empty for all that the format can hold.
        output: A folder that does not exist yet, or is empty.
        choice: Instead of ids: the best entries of an operator.
        progress: Told what is being done.

    Raises:
        ImporterError: The format is unknown, or can only be read.
        ConfigError: The folder is not empty, or two entries would be one file, or ids and a choice are given.
        RetrievalError: There is no such operator or device.
        EntryNotFoundError: There is no such entry.
        EntryFormatError: An id is none, or its entry is broken.
        SourceFormatError: The format can hold none of the entries, or there is none that it could hold.
        StoreError: The folder cannot be written.
    """
    writer = exporter(form)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} is there already", hint="-o a folder that does not exist")
    wanted = choice or Choice()
    if wanted.operator is None and (wanted.top is not None or wanted.device is not None):
        raise ConfigError("the best entries are those of an operator", hint="--operator rmsnorm --top 5")
    if wanted.operator is not None and ids:
        raise ConfigError("expected ids or an operator, found both")
    standing = _standing(root, wanted) if wanted.operator is not None or form == "openevolve" else {}
    if wanted.operator is not None:
        ids = tuple(standing)
        if not ids:
            raise ConfigError(f"no entry of {wanted.operator} works", hint=f"kb list --operator {wanted.operator}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as folder:
            whole = Path(folder) / "export"
            whole.mkdir()
            staging = _Staging(whole)
            own = _OWN[form](root, standing) if form in _OWN else None
            _write(root, writer, own, form, ids, staging, progress or (lambda _stage, _done, _total: None))
            if not staging.made:
                raise _nothing(form, staging.left_out)
            staging.close()
            if output.exists():
                output.rmdir()
            whole.replace(output)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    return Export(str(output), tuple(sorted(staging.made)), tuple(staging.left_out), MANIFEST)


def _nothing(form: str, left_out: Sequence[Skipped]) -> SourceFormatError:
    """Return the error for an export without a file: every entry with its reason, as far as a line holds them."""
    if not left_out:
        return SourceFormatError(f"no entry here can be written as {form}: nothing was written", hint="kb list")
    reasons = "; ".join(f"{one.path}: {one.reason}" for one in left_out[:3])
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return SourceFormatError(f"nothing can be written as {form}: {reasons}{more}", hint="kb export --help")


def _write(
    root: Root, writer: Exporter, own: Own | None, form: str, ids: Sequence[str], staging: _Staging, tell: Progress
) -> None:
    """Write what came from the format, then what is ours."""
    ours: list[str] = []
    wanted = ids or tuple(layout.entry_ids(root.entries))

    def foreign() -> Iterator[Filed]:
        for done, entry in enumerate(_filed(root, wanted), start=1):
            tell("reading entries", done, len(wanted))
            able = writer.can_export(entry)
            if own is not None and not able and own.holds(entry):
                ours.append(entry.id)
            elif ids or able:
                staging.carried[entry.id] = carried_of(entry, came_from_it=able)
                yield entry

    for one in writer.export(foreign()):
        staging.take(one)
    if own is not None:
        for done, entry in enumerate(_filed(root, ours)):
            tell(f"writing kernels as {form}", done, len(ours))
            staging.carried[entry.id] = carried_of(entry, came_from_it=False)
            for made in own.written(entry, staging.made):
                staging.take(made)
