"""Arguments as agents write them: other names for the same, nothing unknown let through in silence."""

import json
from collections.abc import Mapping
from typing import Any

from kb.errors import RetrievalError

_ENTRY = {"entry": "id", "entry_id": "id", "name": "id", "slug": "id", "ref": "id"}
_DEVICE = {"gpu": "device", "hardware": "device", "devices": "device"}
_OPERATOR = {"op": "operator", "operators": "operator", "op_type": "operator", "kernel_type": "operator"}
_DTYPES = {"dtype": "dtypes", "precision": "dtypes", "precisions": "dtypes"}
_SOURCE = {
    "code": "source", "candidate": "source", "kernel": "source", "implementation": "source", "solution": "source",
    "source_code": "source",
}  # fmt: skip

ALIASES: Mapping[str, Mapping[str, str]] = {
    "search": {
        "q": "query", "question": "query", "text": "query", "keywords": "query", "top_k": "limit", "k": "limit",
        "n": "limit", "max_results": "limit", "page": "cursor", "next_cursor": "cursor", "archs": "arch",
        "architecture": "arch", "dtypes": "dtype", "precision": "dtype", "precisions": "dtype", "kinds": "kind",
        "type": "kind", "detailed": "detail", "verbose": "detail", "gpu": "device",
        "hardware": "device", **_OPERATOR,
    },
    "get": {**_ENTRY, "parts": "part", "section": "part", "sections": "part", "gpu": "device"},
    "seed": {
        **_DEVICE, "id": "target", "name": "target", "description": "target", "query": "target", "model": "target",
        "budget": "budget_tokens", "max_tokens": "budget_tokens", "tokens": "budget_tokens",
    },
    "judge": {**_SOURCE, **_OPERATOR, **_DTYPES, "gpu": "device"},
    "submit": {
        **_SOURCE, **_OPERATOR, **_DTYPES, "gpu": "device", "name": "title", "description": "claim",
        "summary": "claim", "notes": "claim", "archs": "arch", "architecture": "arch", "parent": "parents",
        "lineage": "parents", "latency": "latency_us", "result": "outcome",
    },
    "outcome": {
        **_ENTRY, "id": "entry", "entry_id": "entry", "name": "entry", "slug": "entry", "ref": "entry",
        "entry": "entry", "outcome": "result", "target_id": "target", "comment": "note", "notes": "note",
        "evidence": "record",
    },
}  # fmt: skip
"""Tool to other name to its own name."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "search": (
        "query", "limit", "cursor", "kind", "operator", "dtype", "device", "arch", "outcome", "withdrawn", "detail",
    ),
    "get": ("id", "version", "part", "device"),
    "seed": ("target", "device", "budget_tokens", "use"),
    "judge": ("operator", "source", "dtypes", "device"),
    "submit": (
        "title", "claim", "operator", "source", "outcome", "condition", "effect", "hypothesis", "dtypes", "arch",
        "language", "parents", "tags", "license", "device", "latency_us", "measured_on", "workload", "baseline",
        "baseline_us",
    ),
    "outcome": ("entry", "target", "result", "record", "note"),
}  # fmt: skip
"""Tool to the names of its arguments."""

_LISTS = frozenset({"dtypes", "parents", "tags"})
"""Arguments that are lists, and may come as one text with commas."""

_ALSO_LISTS = {"submit": frozenset({"arch"})}

_FREE = frozenset({"source", "claim", "condition", "effect", "hypothesis", "note", "query"})
"""Arguments whose text is left as it is."""

DTYPE_NAMES = {
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "half": "float16", "fp32": "float32", "f32": "float32",
    "float": "float32", "fp64": "float64", "double": "float64", "fp8": "float8_e4m3fn", "e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn", "fp8_e4m3fn": "float8_e4m3fn", "float8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "e5m2": "float8_e5m2", "fp4": "nvfp4",
}  # fmt: skip
"""What engineers call dtypes, in lower case, to the names of the vocabulary."""


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
        own = name if name in NAMES[tool] else ALIASES.get(tool, {}).get(name, name)
        if own not in NAMES[tool]:
            raise RetrievalError(f"{tool} has no argument {name[:80]!r}", hint=_valid(tool, name))
        if value is None or value == []:
            continue
        if own in found:
            raise RetrievalError(f"{own} is given twice (as {name!r} as well)", hint=f"give {own} alone")
        listed = own in _LISTS or own in _ALSO_LISTS.get(tool, ())
        found[own] = _listed(own, value) if listed else _single(own, name, value)
    return found


def _single(own: str, name: str, value: object) -> object:
    if not isinstance(value, list) or own in _FREE:
        return value
    if len(value) > 1:
        raise RetrievalError(f"{name}: one value a call, found {len(value)}", hint="call once for each")
    return value[0]


def _listed(own: str, value: object) -> object:
    """Read a list, a text with commas, or a text of JSON as a list of texts."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = json.loads(text) if text.startswith("[") else text.split(",")
        except ValueError:
            return value
    if not isinstance(value, list):
        return value
    words = [one.strip() if isinstance(one, str) else one for one in value]
    if own != "dtypes":
        return words
    return [DTYPE_NAMES.get(one.lower(), one) if isinstance(one, str) else one for one in words]


def _valid(tool: str, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name[:80], (*NAMES[tool], *ALIASES[tool]), n=1)
    known = f"valid: {', '.join(NAMES[tool])}"
    return f"did you mean {near[0]}? {known}" if near else known
