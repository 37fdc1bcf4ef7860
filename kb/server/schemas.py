"""Schemas of tools in few words: models read them with every request."""

from collections.abc import Mapping
from typing import Any

_NAMES = frozenset({"properties", "$defs", "definitions"})


def short(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that says the same in fewer words.

    Titles repeat names, and ``null`` for an argument that may be left out means to leave it out.

    Args:
        schema: As pydantic writes it.
    """
    made: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "title" or (name in ("default", "description") and value is None):
            continue
        if name in _NAMES:
            made[name] = {key: short(inner) for key, inner in value.items()}
        elif name == "anyOf":
            made |= _without_null(value)
        elif isinstance(value, Mapping):
            made[name] = short(value)
        else:
            made[name] = value
    return made


def _without_null(choices: list[Mapping[str, Any]]) -> dict[str, Any]:
    left = [short(one) for one in choices if one.get("type") != "null"]
    if len(left) == len(choices):
        return {"anyOf": left}
    if len(left) == 1 and isinstance(left[0].get("type"), str):
        return {**left[0], "type": [left[0]["type"], "null"]}
    return {"anyOf": [*left, {"type": "null"}]}
