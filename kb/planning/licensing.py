"""Whether a license lets an entry be used for something. A gate, not legal advice: what it cannot read, it says."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NONCOMMERCIAL = re.compile(r"(?i)(^|[-.])(nc|noncommercial|non-commercial|academic|research|evaluation)([-.0-9]|$)")
"""Parts of identifiers such as CC-BY-NC-4.0, PolyForm-Noncommercial-1.0.0, LicenseRef-Acme-Research-Only."""
_NOBODY = frozenset({"NONE", "NOASSERTION", "UNLICENSED", "LicenseRef-unknown"})
"""Nobody was allowed anything, or nobody knows what."""
_LIMITED = frozenset({"BUSL-1.0", "BUSL-1.1"})
"""Source that may be read and tried, not used in production."""
_WORDS = re.compile(
    r"(?i)\b(non-?commercial|no commercial use|not for commercial|research(?: use)? only|academic use only"
    r"|evaluation (?:use )?only)\b"
)
_NO_USE = re.compile(r"(?i)\b(do not use|no use is allowed|not redistributable)\b")


def refusal(license_: str, restrictions: Sequence[str], *, use: str) -> str | None:
    """Say why an entry may not be used, or None.

    Args:
        license_: SPDX expression of the entry.
        restrictions: Sentences that travel with it.
        use: ``commercial`` or ``research``.
    """
    for text in restrictions:
        if _NO_USE.search(text):
            return f"restriction: {text}"
        if use == "commercial" and _WORDS.search(text):
            return f"restriction: {text}"
    return _expression(license_, use)


def unread(license_: str) -> bool:
    """Tell whether a license has to be read by a person, because its identifier says nothing."""
    return "LicenseRef-" in license_


def _expression(license_: str, use: str) -> str | None:
    # AND binds closer than OR, so each side of an OR is tried as a whole.
    if " OR " in license_:
        found = [_expression(one, use) for one in license_.split(" OR ")]
        return None if None in found else found[0]
    for one in license_.split(" AND "):
        name = one.partition(" WITH ")[0].strip()
        if name in _NOBODY:
            return f"license {name} allows nobody to use it"
        if use == "commercial" and (name in _LIMITED or _NONCOMMERCIAL.search(name)):
            return f"license {name} forbids commercial use"
    return None
