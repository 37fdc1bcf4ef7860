"""The license of what is submitted: as stated, or as the source says; never one that nobody chose."""

import re

from kb.errors import EntryFormatError

_LINE = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+\-]+(?: +(?:AND|OR|WITH) +[A-Za-z0-9.+\-]+)*)")
_NONE = frozenset({"none", "noassertion", "unknown", "licenseref-unknown", "unlicensed"})
_HINT = (
    "license: the SPDX id under which it may be passed on (Apache-2.0, MIT, …), or a line "
    "SPDX-License-Identifier in the source; code that you adapted keeps the license of its entry"
)


def license_of(stated: str | None, source: str | None) -> str:
    """Return the license of a submission.

    Args:
        stated: As the submitter says it; None if nothing was said.
        source: The code, whose ``SPDX-License-Identifier`` lines count; None if there is none.

    Returns:
        An SPDX expression, as it was written.

    Raises:
        EntryFormatError: Nobody stated one, or two say different things.
    """
    said = " ".join((stated or "").split())
    found = sorted({" ".join(one.split()) for one in _LINE.findall(source or "")})
    if not said and not found:
        raise EntryFormatError("license is missing: nobody may pass on what has none", hint=_HINT)
    if len(found) > 1 and not said:
        message = f"the source names {len(found)} licenses: {', '.join(found)[:200]}"
        raise EntryFormatError(message, hint="license: the expression for all of it, such as MIT AND Apache-2.0")
    made = said or found[0]
    if made.lower() in _NONE:
        raise EntryFormatError(f"license: {made[:40]!r} is none", hint=_HINT)
    if said and any(not _covers(said, one) for one in found):
        message = f"license: {said[:80]!r} was stated, and the source says {', '.join(found)[:200]}"
        raise EntryFormatError(message, hint="state what the source says, or an expression with AND that has both")
    return made


def _covers(said: str, found: str) -> bool:
    """Tell whether a stated license is that of the source, or an expression that names it beside others."""
    return said == found or found in said.split(" AND ")
