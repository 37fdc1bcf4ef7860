"""What readers of descriptions without code share: TOML of strangers within limits, and text in one line."""

import re
import tomllib
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.reading import depth_fault, text_of

MOST_BYTES = 1 << 20
"""Largest description: an entry holds no larger file, and a build file that lists its sources has half of it."""
_MOST_DOTS = 16
"""In a key of TOML: the parser needs memory that grows with the square of a dotted key's parts."""
_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)' r"|'''.*?(?:'{3,5}|\Z)" r'|"(?:\\[^\n]|[^"\\\n])*"?' r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments; one that is not closed goes to its end, so that a text is looked at once whatever it holds."""
_NO_KEY = re.compile(r"[^\w\-. \t]")


def line_of(text: object, most: int) -> str:
    """Return a text in one line of at most ``most`` printable characters."""
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def toml_of(raw: bytes) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        SourceFormatError: It is none, is nested too deep, or has a key with too many dots.
    """
    text = text_of(raw)
    bare = _QUOTED.sub(lambda found: "" if found.group().startswith("#") else "q", text)
    if any(part.count(".") > _MOST_DOTS for part in _NO_KEY.split(bare)):
        raise SourceFormatError(f"expected at most {_MOST_DOTS} dots in a key of TOML")
    try:
        value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceFormatError(f"expected TOML, found: {line_of(error, 200)}") from error
    fault = depth_fault(value)
    if fault is not None:
        raise SourceFormatError(fault)
    return value
