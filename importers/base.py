"""The protocol of importers: files → items → drafts of entries, each with its provenance, or a stated reason.

An importer never writes. It says which files of a folder it knows (:meth:`Importer.discover`), and turns what it
claimed into drafts (:meth:`Importer.parse`). ``kb.service.importing`` walks the tree, asks the license gate, finds
duplicates and copies, and files what is left. All here can be pickled, because parsing may run in other processes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kb.importers.tree import SourceFile, Tree

EVIDENCE = ("documented", "reported")
"""All that an import can give: ``reported`` where the source states figures, else ``documented``."""


@dataclass(frozen=True)
class Provenance:
    """Where the bytes of a draft come from."""

    repository: str
    """``owner/name``, or the name of what was imported where no repository is known."""
    path: str
    """Path there, with ``/``; together with ``repository`` it is what a later import recognises the draft by."""
    sha256: str
    """Digest of the original bytes, 64 hexadecimal digits."""
    commit: str | None = None
    """Commit or release; None if the source does not say."""
    url: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Draft:
    """An entry that could be filed: what the source says, and nothing that it does not say."""

    id: str
    """Proposed id, ``kind/topic/slug``; :func:`kb.importers.naming.slug` makes slugs."""
    facts: Mapping[str, Any]
    """Fields of ``entry.toml`` without ``schema``, ``version``, ``license``, ``restrictions`` and ``source``."""
    readme: str
    """At most 60 lines."""
    files: Mapping[str, bytes]
    """Candidate files by name: ``config.json``, ``kernel.py``."""
    provenance: Provenance
    license: str | None
    """SPDX identifier of these very files; None if the source states none."""
    restrictions: tuple[str, ...] = ()
    """What whoever uses it must know; shown with every hit."""
    values: str | None = None
    """Digest of the values alone, apart from the device they are for (:func:`values_digest`): equal values for another
    device are a copy, not a second result. None where that question makes no sense."""
    device: str | None = None
    """Whom the values are for, as the source spells it."""

    @property
    def evidence(self) -> str:
        """``reported`` if it carries figures, else ``documented``."""
        return "reported" if self.facts.get("claims") else "documented"

    @property
    def content(self) -> str:
        """Digest of files and facts: equal ones are the same draft."""
        state = hashlib.sha256(repr(sorted(_frozen(self.facts))).encode("utf-8", "surrogatepass"))
        for name in sorted(self.files):
            state.update(f"\0{name}\0{len(self.files[name])}\0".encode())
            state.update(self.files[name])
        return state.hexdigest()


def _frozen(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in facts.items():
        yield key, repr(sorted(_frozen(value))) if isinstance(value, Mapping) else repr(value)


@dataclass(frozen=True)
class Skipped:
    """A file, or a part of one, that gives no draft."""

    path: str
    """Path in the source; a part of a file as ``path#part``."""
    reason: str
    """What was expected and what was found, in one line."""
    refused: bool = True
    """False where nothing is wrong with it: a list of names, a readme, a duplicate."""


@dataclass(frozen=True)
class Folder:
    """One folder of a source: what it holds that nobody has claimed yet."""

    tree: Tree
    path: str
    """Path in the source with ``/``; empty for the source's own folder."""
    files: Sequence[SourceFile]
    """By name; links are never among them."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Item:
    """What one call of :meth:`Importer.parse` takes: one file, or several that belong together."""

    tree: Tree
    files: tuple[SourceFile, ...]
    """What it consumes; the first gives the item its name."""
    whole: bool = False
    """True if everything below the first file's folder belongs to it: the walk does not go further down."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Whatever the importer learnt while discovering."""

    @property
    def path(self) -> str:
        """Path of the first file."""
        return self.files[0].path


@dataclass(frozen=True)
class Context:
    """What the user said beyond the source; None where nothing was said."""

    device: str | None = None
    """For formats that do not name their device, such as Triton's autotune cache."""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    """Likewise: package to version."""


class Importer(Protocol):
    """Turns one format into drafts. Implementations keep no state and can be pickled by their name."""

    @property
    def name(self) -> str:
        """What ``--format`` takes: lower-case words with hyphens."""

    @property
    def summary(self) -> str:
        """One line: what it reads."""

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files of a folder by their names, and only if the name cannot tell, by their first bytes.

        Args:
            folder: One folder, asked once; what an earlier importer claimed is not in it.

        Returns:
            Items; files that no importer claims are reported as unknown.
        """

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make drafts of an item, or say why not; every file of the item ends in a draft or in a ``Skipped``.

        Args:
            item: What ``discover`` returned.
            context: What the user added.

        Raises:
            SourceFormatError: The item as a whole cannot be read (truncated, hostile): becomes a ``Skipped``.
        """


@dataclass(frozen=True)
class Filed:
    """An entry, as an exporter gets it."""

    id: str
    version: int
    facts: Mapping[str, Any]
    """All of ``entry.toml`` as plain values."""
    readme: str
    files: Mapping[str, bytes]
    """All files of its folder but records and outcomes."""


@dataclass(frozen=True)
class Exported:
    """One file of an export."""

    path: str
    """Path below the folder that is exported to, with ``/``."""
    body: bytes
    entry: str | None = None
    """Id of the entry that it was made of: its license and origin are those of the file. None if of no single one."""
    license: str | None = None
    """SPDX expression of a file that was made of no single entry."""


@runtime_checkable
class Exporter(Protocol):
    """An importer that can write its format as well: import → export → import gives the same digests."""

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry can be written in this format."""

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Write entries in this format.

        Args:
            entries: Any entries; those that the format cannot hold come back as ``Skipped`` with the reason.
        """


def sha256(body: bytes) -> str:
    """Return the digest of bytes as 64 hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def values_digest(value: object) -> str:
    """Return a digest of parsed JSON that does not depend on layout or the order of keys."""
    import json

    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii"))


def provenance_of(file: SourceFile, tree: Tree, body: bytes) -> Provenance:
    """Return where a file comes from, as far as the source says.

    Args:
        file: The file.
        tree: Its source.
        body: Its bytes.
    """
    origin = tree.origin_of(file.path)
    return Provenance(
        repository=origin.repository,
        path=origin.path,
        sha256=sha256(body),
        commit=origin.commit,
        url=origin.url,
        note=origin.note,
    )
