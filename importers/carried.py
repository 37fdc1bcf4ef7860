"""What an export says of its files beside them: license and place of origin, in the manifest that an import reads.

Formats such as tuned parameters have no word for a license, and their loaders take no further field. So every export
has a ``MANIFEST.jsonl``, which readers of these formats do not look at: one row a file. What is written by us names its
license in the file as well, where the format has a field for texts.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.importers.base import Exported, Filed, sha256
from kb.importers.license import spdx
from kb.importers.tree import CHANGED, MANIFEST

_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+\-]+(?:[ \t]+(?:AND|OR|WITH)[ \t]+[A-Za-z0-9.+\-]+)*)")
_TAG = "license:"
_COMMENTS = {
    "py": "#",
    "cu": "//",
    "cuh": "//",
    "cpp": "//",
    "cc": "//",
    "c": "//",
    "h": "//",
    "hpp": "//",
    "hip": "//",
}


def tag_of(license_: str) -> str:
    """Return the tag that names a license, for formats with a list of tags."""
    return f"{_TAG}{license_}"


def sentence_of(license_: str) -> str:
    """Return the words that name a license in a description."""
    return f"SPDX-License-Identifier: {license_}"


def with_notice(source: str, license_: str, suffix: str) -> str:
    """Return program text that names its license; unchanged if it does already, or if its comments are not known.

    Args:
        source: The text.
        license_: SPDX expression.
        suffix: Of its file, without the dot.
    """
    mark = _COMMENTS.get(suffix)
    if mark is None or _SPDX.search(source):
        return source
    return f"{mark} {sentence_of(license_)}\n{source}"


def stated_in(tags: object, texts: Iterable[object]) -> str | None:
    """Return the license that tags or texts inside a file name, or None.

    Args:
        tags: A list in which ``license:SPDX`` may stand; anything else names none.
        texts: Descriptions and program texts, in which an SPDX line may stand.

    Returns:
        An SPDX expression; of several different ones all that apply, joined by ``AND``.
    """
    named = [one.removeprefix(_TAG) for one in _texts(tags) if one.startswith(_TAG)]
    named += [
        " ".join(one.split()).rstrip(".-") for text in texts if isinstance(text, str) for one in _SPDX.findall(text)
    ]
    found = [made for one in dict.fromkeys(named) if (made := spdx(one)) is not None]
    kept = list(dict.fromkeys(found))
    if len(kept) > 1 and any(" OR " in one for one in kept):
        return None  # a choice cannot be joined to others without brackets, which nobody here reads
    return " AND ".join(kept) if kept else None


def _texts(tags: object) -> Sequence[str]:
    return [one for one in tags if isinstance(one, str)] if isinstance(tags, list) else []


@dataclass(frozen=True)
class Carried:
    """What the manifest says of the files of one entry."""

    license: str | None
    source: Mapping[str, Any] | None = None
    """Table ``source`` of the entry; None where the entry came from elsewhere than a file of the format."""


def carried_of(entry: Filed, *, came_from_it: bool) -> Carried:
    """Return what is to be said of an entry's files.

    Args:
        entry: The entry.
        came_from_it: Whether it came from a file of the format: its place of origin is that of the file then.
    """
    source = entry.facts.get("source")
    license_ = entry.facts.get("license")
    kept = source if came_from_it and isinstance(source, Mapping) else None
    return Carried(license_ if isinstance(license_, str) else None, kept)


def row_of(one: Exported, carried: Carried) -> Mapping[str, Any]:
    """Return the row of the manifest for one file of an export."""
    row: dict[str, Any] = {"file": one.path}
    if carried.source is not None and carried.source.get("origin"):
        named = {"repo": "origin", "url": "url", "commit": "commit", "path": "path"}
        row.update({name: carried.source.get(key) for name, key in named.items()})
        if CHANGED in str(carried.source.get("note")):
            row["changed"] = True
    return {**row, "license": carried.license, "saved_sha256": sha256(one.body)}


def manifest_of(rows: Iterable[Mapping[str, Any]]) -> Exported:
    """Return the manifest as a file of the export; its rows are sorted by file."""
    lines = [json.dumps(row, ensure_ascii=True) for row in sorted(rows, key=lambda row: str(row["file"]))]
    return Exported(MANIFEST, "".join(f"{line}\n" for line in lines).encode("ascii"))
