"""What readers of descriptions without code share: TOML of strangers within limits, and text in one line."""

import tomllib
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.reading import depth_fault, text_of

MOST_BYTES = 256 << 10
"""Largest description."""
_MOST_DOTS = 64
"""In a line of TOML: the parser needs memory that grows with the square of a dotted key's parts."""


def line_of(text: object, most: int) -> str:
    """Return a text in one line of at most ``most`` printable characters."""
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def toml_of(raw: bytes) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        SourceFormatError: It is none, is nested too deep, or has a key with too many dots.
    """
    if any(line.count(b".") > _MOST_DOTS and b'"' not in line for line in raw.split(b"\n")):
        raise SourceFormatError(f"expected at most {_MOST_DOTS} dots in a line of TOML")
    try:
        value = tomllib.loads(text_of(raw))
    except (ValueError, RecursionError) as error:
        raise SourceFormatError(f"expected TOML, found: {line_of(error, 200)}") from error
    fault = depth_fault(value)
    if fault is not None:
        raise SourceFormatError(fault)
    return value
