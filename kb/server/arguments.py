"""Arguments as agents write them: other names for the same, nothing unknown let through in silence."""

from collections.abc import Mapping
from typing import Any

from kb.errors import RetrievalError

ALIASES: Mapping[str, Mapping[str, str]] = {
    "search": {
        "q": "query", "question": "query", "text": "query", "top_k": "limit", "k": "limit", "n": "limit",
        "gpu": "device", "archs": "arch", "architecture": "arch", "dtypes": "dtype", "precision": "dtype",
        "precisions": "dtype", "op": "operator", "operators": "operator", "kinds": "kind", "detailed": "detail",
        "verbose": "detail",
    },
    "get": {"entry": "id", "entry_id": "id", "parts": "part"},
}  # fmt: skip
"""Tool to other name to its own name."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "search": ("query", "limit", "kind", "operator", "dtype", "device", "arch", "outcome", "withdrawn", "detail"),
    "get": ("id", "version", "part"),
}
"""Tool to the names of its arguments."""

_SINGLE = frozenset({"kind", "operator", "dtype", "device", "arch", "outcome", "part"})
"""Arguments that may come as a list of one."""


def read(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments under their own names.

    Args:
        tool: Name of the tool.
        given: What the caller sent; null values are as good as left out.

    Raises:
        RetrievalError: A name is unknown, given twice, or a list has several values; the message names what is valid.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(tool, {}).get(name, name)
        if own not in NAMES[tool]:
            raise RetrievalError(f"{tool} has no argument {name!r}", hint=_valid(tool, name))
        if value is None:
            continue
        if own in _SINGLE and isinstance(value, list):
            if len(value) > 1:
                raise RetrievalError(f"{name}: one value a call, found {len(value)}", hint="call once for each")
            if not value:
                continue
            value = value[0]
        if own in found:
            raise RetrievalError(f"{own} is given twice (as {name!r} as well)", hint=f"give {own} alone")
        found[own] = value
    return found


def _valid(tool: str, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, (*NAMES[tool], *ALIASES[tool]), n=1)
    known = f"valid: {', '.join(NAMES[tool])}"
    return f"did you mean {near[0]}? {known}" if near else known
