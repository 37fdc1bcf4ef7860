"""Where an entry lies and what its files are called; the only module that knows file names. Standard library only."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kb.catalogue import state_of, tree_rows
from kb.errors import EntryFormatError
from kb.models.vocabulary import ENTRY_ID, KINDS

FACTS = "entry.toml"
README = "README.md"
CONFIG = "config.json"
RECORDS = "records"
OUTCOMES = "outcomes"

_PROSE = re.compile(r"(?i)(.*\.md|license(\..*)?|notice(\..*)?)")
_FILE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_SUFFIXES = (
    ".py", ".pyi", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".inc", ".hip", ".ptx", ".mlir", ".json", ".toml",
    ".md", ".txt", ".csv", ".yaml", ".yml", ".patch", ".diff",
)  # fmt: skip
MAX_DEPTH = 3
"""Most folders inside an entry's folder, in one another."""
_TOP_FILES = frozenset({"keyring.toml", README})


@dataclass(frozen=True)
class EntryPath:
    """An id, taken apart."""

    kind: str
    topic: str
    slug: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.topic}/{self.slug}"


@dataclass(frozen=True)
class Found:
    """One folder below ``entries/`` that should hold an entry."""

    id: str
    """Path below ``entries/``; of the right form only if ``fault`` is None."""
    stamp: str
    """State of its files by name, size and time."""
    changed_ns: int
    """Youngest change of one of its files."""
    fault: str | None = None
    """What is wrong with its place or name."""


@dataclass(frozen=True)
class Survey:
    """All that a look at the folders, without reading a file, tells."""

    state: str
    """Same value as ``kb.catalogue.tree_state`` gives."""
    found: tuple[Found, ...]
    """By id."""
    strays: tuple[tuple[str, str], ...]
    """Files that belong to no entry: path below ``entries/`` and what is wrong."""
    changed_ns: int
    """Youngest change of any file."""


def printable(name: str) -> str:
    """Return a text that can be printed in one line: undecodable bytes and control characters are escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in name)


def parse_id(text: str) -> EntryPath:
    """Take an id apart.

    Args:
        text: ``kind/topic/slug``, with ``/`` on every system.

    Raises:
        EntryFormatError: It is no id: unknown kind, absolute, ``..``, a name that Windows reserves, wrong case.
    """
    shown = printable(text) if len(text) <= 200 else printable(text[:200]) + "…"
    hint = "an id is KIND/TOPIC/SLUG, such as kernel/rmsnorm/row-per-cta"
    kind = text.split("/", 1)[0]
    if "/" in text and kind not in KINDS:
        raise EntryFormatError(
            f"id '{shown}': expected a kind of {', '.join(KINDS)}, found '{printable(kind)}'", hint=hint
        )
    if not ENTRY_ID.fullmatch(text) or len(text) > 200:
        raise EntryFormatError(f"id '{shown}': expected KIND/TOPIC/SLUG in lower case, without '..'", hint=hint)
    _, topic, slug = text.split("/")
    for part in (topic, slug):
        if _RESERVED.fullmatch(part):
            raise EntryFormatError(
                f"id '{shown}': {part!r} is a name that Windows reserves", hint="choose another name"
            )
    return EntryPath(kind, topic, slug)


def folder_of(entries: Path, entry_id: str) -> Path:
    """Return the folder of an entry, which need not exist.

    Raises:
        EntryFormatError: The id is none.
    """
    path = parse_id(entry_id)
    return entries / path.kind / path.topic / path.slug


def guess_id(folder: Path) -> str | None:
    """Return the id that the last three parts of a path spell, or None if they spell none."""
    parts = folder.parts[-3:]
    if len(parts) < 3 or parts[0] not in KINDS:
        return None
    try:
        return str(parse_id("/".join(parts)))
    except EntryFormatError:
        return None


def file_fault(name: str) -> str | None:
    """Say what is wrong with the name of a file of an entry, or None.

    Args:
        name: Path relative to the entry's folder, with ``/``.
    """
    parts = name.split("/")
    for part in parts:
        if not _FILE_PART.fullmatch(part) or part.endswith(".") or len(part) > 100:
            return "expected a plain file name of letters, digits and ._+-"
        if _RESERVED.fullmatch(part):
            return "the name is one that Windows reserves"
    if len(parts) > MAX_DEPTH + 1:
        return f"expected at most {MAX_DEPTH} folders inside one another"
    if is_evidence(name):
        return None if name.endswith(".json") else f"expected only .json files in {parts[0]}/"
    if parts[-1] == FACTS and len(parts) > 1:
        return "an entry may not lie inside another one"
    suffix = Path(parts[-1]).suffix.lower()
    if suffix not in _SUFFIXES and not _PROSE.fullmatch(parts[-1]):
        return f"unknown kind of file; expected one of {' '.join(_SUFFIXES)}"
    return None


def is_evidence(name: str) -> bool:
    """Tell whether a file of an entry is a record or an outcome: written by machines, appended only."""
    return name.split("/", 1)[0] in (RECORDS, OUTCOMES) and "/" in name


def is_candidate(name: str) -> bool:
    """Tell whether a file of an entry is part of what runs."""
    return name != FACTS and not is_evidence(name) and not _PROSE.fullmatch(name.rsplit("/", 1)[-1])


def _changed_ns(mtime: str, ctime: str) -> int:
    # On POSIX every change of content moves ctime, and nobody can set it; elsewhere it is the time of creation.
    return int(ctime if os.name == "posix" else mtime)


def _place_fault(parts: list[str]) -> str | None:
    if len(parts) == 1:
        return None if parts[0] in _TOP_FILES else "expected only folders of kinds here"
    if parts[0] not in KINDS:
        return f"unknown kind '{printable(parts[0])}'; expected one of {', '.join(KINDS)}"
    if parts[-1] == README:
        return None
    return "expected KIND/TOPIC/SLUG/FILE: this lies outside of any entry, or is a link"


def _id_fault(entry_id: str) -> str | None:
    try:
        parse_id(entry_id)
    except EntryFormatError as error:
        return error.message
    return None


def same_name(entry_id: str) -> str:
    """Return what two ids share that nobody could tell apart, or that are one folder on some systems."""
    return entry_id.casefold().replace("_", "-")


def survey(entries: Path) -> Survey:
    """Look at every folder below ``entries`` without reading a file.

    Raises:
        IndexStaleError: A folder cannot be listed.
    """
    rows = tree_rows(entries)
    groups: dict[str, list[str]] = {}
    strays: list[tuple[str, str]] = []
    youngest: dict[str, int] = {}
    changed = 0
    for row in rows:
        path, _, mtime, ctime = row.rsplit("\0", 3)
        parts = list(Path(path).parts)
        when = _changed_ns(mtime, ctime)
        changed = max(changed, when)
        if len(parts) < 4 or parts[0] not in KINDS:
            fault = _place_fault(parts)
            if fault is not None:
                strays.append((printable("/".join(parts)), fault))
            continue
        entry_id = "/".join(parts[:3])
        groups.setdefault(entry_id, []).append(row)
        youngest[entry_id] = max(youngest.get(entry_id, 0), when)
    firsts: dict[str, str] = {}
    found = []
    for entry_id in sorted(groups):
        fault = _id_fault(entry_id)
        # A folder whose name is none must not take the place of one whose name is.
        first = entry_id if fault is not None else firsts.setdefault(same_name(entry_id), entry_id)
        if first != entry_id:
            fault = f"duplicate id: {printable(entry_id)} and {printable(first)} are the same name"
        found.append(Found(entry_id, state_of(groups[entry_id]), youngest[entry_id], fault))
    return Survey(state_of(rows), tuple(found), tuple(strays), changed)


def entry_ids(entries: Path) -> Iterator[str]:
    """Yield the ids of all folders that may hold an entry, sorted; badly placed ones are left out."""
    return (item.id for item in survey(entries).found if item.fault is None)
