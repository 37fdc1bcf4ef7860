"""Slugs and file names that every system accepts, made from names that some do not."""

import re
import unicodedata

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')

MOST = 110
"""Longest slug."""


def slug(*parts: object) -> str:
    """Make the last part of an id: lower-case letters, digits and single hyphens.

    Args:
        parts: Words of any kind; empty ones are left out.

    Returns:
        At most ``MOST`` characters; a longer one keeps its beginning and eight digits of its digest. Never empty, and
        never a name that Windows reserves.
    """
    import hashlib

    text = "-".join(str(part) for part in parts if str(part))
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    made = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if not made or _RESERVED.fullmatch(made):
        made = f"x-{made}".strip("-")
    if len(made) <= MOST:
        return made
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{made[: MOST - 9].rstrip('-')}-{digest}"


def topic(text: str) -> str:
    """Make the middle part of an id: letters and digits with single underscores; ``other`` if none is left."""
    made = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:60].rstrip("_")
    if not made:
        return "other"
    return f"x_{made}" if _RESERVED.fullmatch(made) else made


def windows_fault(path: str) -> str | None:
    """Say why Windows would not take a path, or None.

    Args:
        path: Relative, with ``/``.
    """
    for part in path.split("/"):
        if _FORBIDDEN.search(part):
            return f"{part!r} has a character that Windows forbids"
        if part != part.rstrip(". ") or _RESERVED.fullmatch(part):
            return f"{part!r} is a name that Windows cannot have"
    return None


def unsafe_path(path: str) -> str | None:
    """Say why a path may not be written below a folder, or None: absolute, ``..``, a drive, a control character."""
    parts = path.replace("\\", "/").split("/")
    if path.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", path):
        return "it is absolute"
    if any(part in ("", ".", "..") for part in parts):
        return "it has an empty part, '.' or '..'"
    if any(not character.isprintable() for character in path):
        return "it has characters that cannot be printed"
    return None
