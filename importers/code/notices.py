"""Under which license a file of program text is, and which notices must travel with what is taken from it."""

import re

from kb.importers.license import UNKNOWN, of_file, of_header, spdx
from kb.importers.tree import Tree

_HEAD = 4096
_PROSE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)research(er)? reciprocity"), "LicenseRef-Research-Reciprocity"),
    (re.compile(r"(?i)affero general public license"), "AGPL-3.0-only"),
    (re.compile(r"(?i)lesser general public license"), "LGPL-3.0-only"),
    (re.compile(r"(?i)gnu general public license"), "GPL-3.0-only"),
    (re.compile(r"(?i)mozilla public license"), "MPL-2.0"),
    (re.compile(r"(?i)strictly prohibited|proprietary and confidential|non-?commercial|all rights reserved\. *do not"),
     "LicenseRef-proprietary"),
    (re.compile(r"(?i)apache license,?\s*\W*version 2|apache[- ]2\.0"), "Apache-2.0"),
    (re.compile(r"(?i)\bmit license\b"), "MIT"),
    (re.compile(r"(?i)bsd[- ]3-?clause"), "BSD-3-Clause"),
)  # fmt: skip
_WITH_TEXT = frozenset({"MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "NCSA"})
"""Licenses whose own text names who holds the copyright, and asks to be passed on."""
_MOST_TEXT = 16 << 10
_COMMENT = re.compile(
    r"(?s)\A(?:\s*(?:#[^\n]*\n|//[^\n]*\n|/\*.*?\*/|\"\"\".*?\"\"\"|'''.*?'''|from __future__[^\n]*\n))*"
)


def license_of(tree: Tree, path: str, raw: bytes) -> str | None:
    """Return the license of a file: its SPDX tag; else the nearest license file, and what its first comment names.

    Args:
        tree: Its source.
        path: Its path there.
        raw: Its bytes.

    Returns:
        An SPDX expression; ``A AND B`` where the comment names a license beside that of the repository, because a file
        that took in another's code is under both. None where nothing is stated.
    """
    tagged = of_header(raw)
    if tagged is not None:
        return spdx(tagged)
    around = of_file(tree, path, raw)
    head = raw[:_HEAD].decode("utf-8", "replace")
    found = _COMMENT.match(head)
    comment = found.group(0) if found else ""
    named = [license_ for pattern, license_ in _PROSE if pattern.search(comment)]
    if around is None or around == UNKNOWN:
        return named[0] if named else around
    others = [one for one in dict.fromkeys(named) if one not in around.split()]
    return " AND ".join([around, *others]) if others else around


def texts(tree: Tree, path: str, license_: str | None) -> dict[str, bytes]:
    """Return the license text that must go with what is taken from a file, by name; none for most.

    Args:
        tree: Its source.
        path: Its path there.
        license_: Of the file.
    """
    if license_ is None or not _WITH_TEXT & set(license_.split()):
        return {}
    folder = path.rpartition("/")[0]
    while True:
        text = tree.license_text(folder)
        if text is not None:
            fits = len(text) <= _MOST_TEXT and b"\0" not in text
            return {"LICENSE.txt": text.decode("utf-8", "replace").encode()} if fits else {}
        if not folder:
            return {}
        folder = folder.rpartition("/")[0]
