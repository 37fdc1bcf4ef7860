"""Versions of an entry: list them, show one, compare two."""

import difflib
import re

from kb.config import Root
from kb.errors import EntryFormatError, EntryNotFoundError
from kb.store import history as store
from kb.store import layout
from kb.store.history import Snapshot, Version

_REFERENCE = re.compile(r"([^@]+)(?:@v?([0-9]{1,7}))?")


def parse_reference(text: str) -> tuple[str, int | None]:
    """Take ``ID`` or ``ID@VERSION`` apart.

    Args:
        text: What the user wrote.

    Raises:
        EntryFormatError: It is neither.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        shown = layout.printable(text[:200])
        raise EntryFormatError(f"'{shown}': expected ID or ID@VERSION", hint="kb show kernel/rmsnorm/row-per-cta@1")
    entry_id = str(layout.parse_id(match.group(1)))
    return entry_id, int(match.group(2)) if match.group(2) else None


def resolve(root: Root, text: str) -> tuple[str, int | None]:
    """Take a reference apart; a slug that only one entry has will do for its id.

    Args:
        root: The knowledge base.
        text: ``ID``, ``ID@VERSION``, ``SLUG`` or ``SLUG@VERSION``.

    Raises:
        EntryFormatError: It is none of these.
        EntryNotFoundError: The slug is that of several entries.
    """
    slug, at, version = text.partition("@")
    if "/" not in slug:
        named = [known for known in layout.entry_ids(root.entries) if slug and known.endswith("/" + slug)]
        if len(named) > 1:
            raise EntryNotFoundError(f"'{slug}' is the slug of {len(named)} entries", hint=f"one of {', '.join(named)}")
        if named:
            return parse_reference(named[0] + at + version)
    return parse_reference(text)


def is_incomplete(root: Root) -> bool:
    """Tell whether git holds only the newest commits, so that a history may lack older versions."""
    return store.is_shallow(root.entries)


def _nearest(root: Root, entry_id: str) -> str:
    known = list(layout.entry_ids(root.entries))
    near = difflib.get_close_matches(entry_id, known, n=3, cutoff=0.5)
    return "nearest: " + ", ".join(near) if near else "kb list"


def history(root: Root, entry_id: str) -> tuple[Version, ...]:
    """Return all versions of an entry, newest first.

    Args:
        root: The knowledge base.
        entry_id: Its id or slug; a version after ``@`` is ignored.

    Raises:
        EntryFormatError: The id is none.
        EntryNotFoundError: Neither the files nor git know it; the hint names the nearest ids.
        HistoryError: Git is missing or cannot be read.
    """
    name, _ = resolve(root, entry_id)
    try:
        return store.versions(root.entries, name)
    except EntryNotFoundError as error:
        raise EntryNotFoundError(error.message, hint=_nearest(root, name)) from error


def show(root: Root, reference: str) -> Snapshot:
    """Return the files of an entry, now or at a version.

    Args:
        root: The knowledge base.
        reference: ``ID`` or ``ID@VERSION``; a slug will do.

    Raises:
        EntryFormatError: The reference is none.
        EntryNotFoundError: There is no such entry or version.
        HistoryError: An older version was asked for and git cannot give it.
    """
    name, version = resolve(root, reference)
    try:
        return store.at(root.entries, name, version)
    except EntryNotFoundError as error:
        known = layout.folder_of(root.entries, name).is_dir() or "versions: none" not in (error.hint or "")
        hint = error.hint if known and version is not None else _nearest(root, name)
        raise EntryNotFoundError(error.message, hint=hint) from error


def diff(root: Root, old: str, new: str | None = None) -> tuple[str, ...]:
    """Return a unified diff between two versions.

    Args:
        root: The knowledge base.
        old: ``ID@VERSION`` to compare from.
        new: ``ID`` or ``ID@VERSION`` to compare to; None for the files that are there now.

    Raises:
        EntryFormatError: A reference is none.
        EntryNotFoundError: There is no such entry or version.
        HistoryError: An older version was asked for and git cannot give it.
    """
    name, _ = resolve(root, old)
    return store.diff(show(root, old), show(root, new or name))
