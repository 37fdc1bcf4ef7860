"""The license gate: what may be imported, what travels along as a restriction, what is refused."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from kb.errors import SourceFormatError
from kb.importers.base import Draft
from kb.importers.descriptions import MOST_BYTES, toml_of
from kb.importers.tree import Tree

ALLOWED: tuple[str, ...] = (
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0", "CC0-1.0", "ISC", "MIT", "MIT-0",
    "NCSA", "Unlicense", "Zlib", "Apache-2.0 WITH LLVM-exception",
)  # fmt: skip
"""SPDX identifiers that let anybody copy, change and redistribute."""

RESTRICTED = {"CC-BY-4.0": "CC-BY-4.0: whoever passes it on must name the authors"}
"""Allowed, with something that whoever uses it must know."""

RECIPROCITY = "LicenseRef-Research-Reciprocity"
"""Ours for licenses that give something only to those who give their research back; not redistributable."""

UNKNOWN = "LicenseRef-unknown"
"""There is a license, and its text is none that is known."""

_SPDX_LINE = re.compile(rb"SPDX-License-Identifier:\s*([A-Za-z0-9.+\-]+(?: +(?:AND|OR|WITH) +[A-Za-z0-9.+\-]+)*)")
_CARD = re.compile(rb"---\r?\n(.*?)\n---\s", re.DOTALL)
_CARD_LICENSE = re.compile(rb"(?m)^license:[ \t]*[\"']?([A-Za-z0-9.+\-]+)[\"']?[ \t]*\r?$")
"""Of the table at the head of a README, as the Hugging Face Hub reads it."""
_RECIPROCITY_WORDS = re.compile(r"(?i)research(?:er)?[ -]reciprocity")
_TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (RECIPROCITY, ("reciprocity license",)),
    ("AGPL-3.0-only", ("gnu affero general public license",)),
    ("LGPL-3.0-only", ("gnu lesser general public license",)),
    ("GPL-3.0-only", ("gnu general public license",)),
    ("MPL-2.0", ("mozilla public license version 2.0",)),
    ("Apache-2.0 WITH LLVM-exception", ("apache license", "version 2.0", "llvm exceptions")),
    ("Apache-2.0", ("apache license", "version 2.0")),
    ("BSL-1.0", ("boost software license",)),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "neither the name")),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms",)),
    ("MIT", ("permission is hereby granted, free of charge", "the above copyright notice and this permission notice")),
    ("MIT-0", ("permission is hereby granted, free of charge",)),
    ("ISC", ("permission to use, copy, modify, and/or distribute this software",)),
    ("Unlicense", ("free and unencumbered software released into the public domain",)),
    ("CC0-1.0", ("cc0 1.0 universal",)),
    ("CC-BY-4.0", ("creative commons attribution 4.0",)),
)
_SPELLINGS = {
    "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0", "apache-2": "Apache-2.0", "apache2": "Apache-2.0",
    "apache 2": "Apache-2.0", "apache license, version 2.0": "Apache-2.0", "apache software license": "Apache-2.0",
    "apache-2.0 license": "Apache-2.0", "mit license": "MIT", "the mit license": "MIT", "bsd 3-clause": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause", "bsd 2-clause": "BSD-2-Clause", "bsd3": "BSD-3-Clause", "new bsd": "BSD-3-Clause",
}  # fmt: skip


@dataclass(frozen=True)
class Ruling:
    """What the gate says of one license."""

    license: str
    """As the entry will state it."""
    restrictions: tuple[str, ...] = ()
    refused: str | None = None
    """Why not, or None."""


def spdx(stated: str) -> str | None:
    """Return the SPDX expression that a statement means, or None if it means none for sure.

    Args:
        stated: ``Apache-2.0``, ``apache 2.0``, ``MIT (its authors)``.
    """
    plain = re.sub(r"\s*\([^()]*\)\s*$", "", stated).strip()
    if _RECIPROCITY_WORDS.search(plain):
        return RECIPROCITY
    if plain.lower() in _SPELLINGS:
        return _SPELLINGS[plain.lower()]
    folded = {each.lower(): each for each in ALLOWED}
    if plain.lower() in folded:
        return folded[plain.lower()]
    return plain if re.fullmatch(r"[A-Za-z0-9.+\-]+( (AND|OR|WITH) [A-Za-z0-9.+\-]+)*", plain) else None


def of_text(text: str) -> str | None:
    """Return the SPDX identifier of a license's text, or None if it is not known."""
    plain = " ".join(text[:40_000].lower().split())
    if _RECIPROCITY_WORDS.search(plain):
        return RECIPROCITY
    for name, phrases in _TEXTS:
        if all(phrase in plain for phrase in phrases):
            return name
    return None


def of_header(body: bytes) -> str | None:
    """Return the license that the first lines of a file state in an SPDX tag, or None."""
    found = _SPDX_LINE.search(body[:2048])
    return found.group(1).decode("ascii") if found else None


def of_file(tree: Tree, path: str, body: bytes | None = None, *, default: str | None = None) -> str | None:
    """Return the license of one file: its own tag, its row of the manifest, the nearest folder's, the default.

    Args:
        tree: The source.
        path: The file.
        body: Its bytes, if they were read.
        default: What the user says of files that state nothing.

    Returns:
        An SPDX expression, or None if nobody states one that can be read.
    """
    tagged = of_header(body if body is not None else tree.head(path))
    if tagged is not None:
        return spdx(tagged)
    origin = tree.origin_of(path)
    if origin.license is not None and path in tree.manifest:
        return spdx(origin.license)
    for folder in (PurePosixPath(path).parent, *PurePosixPath(path).parent.parents):
        found = _nearest(tree, "" if str(folder) == "." else str(folder))
        if found is not None:
            return found
    if default is not None:
        return spdx(default)
    return spdx(origin.license) if origin.license is not None else None


def _nearest(tree: Tree, folder: str) -> str | None:
    if folder not in tree.licenses:
        text = tree.license_text(folder)
        # A license that cannot be read stands in the way of what lies above it: it may say something else.
        tree.licenses[folder] = (
            _described(tree, folder) if text is None else of_text(text.decode("utf-8", "replace")) or UNKNOWN
        )
    return tree.licenses[folder]


def _described(tree: Tree, folder: str) -> str | None:
    """Return what a folder without a license file says of itself: a build file of HF kernels, a card of the Hub."""
    place = f"{folder}/" if folder else ""
    stated = None
    with suppress(SourceFormatError):
        if tree.exists(f"{place}build.toml"):
            general = toml_of(tree.read(f"{place}build.toml", limit=MOST_BYTES)).get("general")
            stated = general.get("license") if isinstance(general, dict) else None
    if stated is None:
        card = _CARD.match(tree.head(f"{place}README.md"))
        named = _CARD_LICENSE.search(card.group(1)) if card else None
        stated = named.group(1).decode("ascii") if named else None
    return spdx(stated) or UNKNOWN if isinstance(stated, str) and stated else None


def rule(license_: str | None, *, also: frozenset[str] = frozenset()) -> Ruling:
    """Say whether a license lets its files in.

    Args:
        license_: SPDX expression, or None where nothing is stated.
        also: Further identifiers that the user takes responsibility for.

    Returns:
        The ruling; what only ``also`` lets in carries a restriction.
    """
    if license_ is None:
        return Ruling("NONE", refused="no license is stated; if you know it: --license SPDX")
    if license_ == UNKNOWN:
        return Ruling(license_, refused="the license file beside it is not one that is known")
    if license_ in ALLOWED:
        return Ruling(license_, tuple(RESTRICTED[one] for one in (license_,) if one in RESTRICTED))
    ruling = _expression(license_, also)
    if ruling is not None:
        return ruling
    if license_ == RECIPROCITY:
        return Ruling(
            license_, refused="a research-reciprocity license: not redistributable, so refused (--allow-license)"
        )
    return Ruling(license_, refused=f"license {license_} is not on the allow-list (--allow-license {license_})")


def _expression(license_: str, also: frozenset[str]) -> Ruling | None:
    if license_ in also:
        return Ruling(license_, (f"{license_}: let in by hand; read it before you use or pass on this",))
    if " OR " in license_:
        for one in license_.split(" OR "):
            found = rule(one, also=also)
            if found.refused is None:
                return Ruling(license_, found.restrictions)
        return None
    if " AND " in license_:
        parts = [rule(one, also=also) for one in license_.split(" AND ")]
        if all(one.refused is None for one in parts):
            return Ruling(license_, tuple(text for one in parts for text in one.restrictions))
    return None


def gate(draft: Draft, *, also: frozenset[str] = frozenset()) -> Ruling:
    """Say whether a draft may be filed, by the license of its own files.

    Args:
        draft: What an importer made.
        also: Further identifiers that the user takes responsibility for.
    """
    return rule(draft.license, also=also)
