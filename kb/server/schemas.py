"""Schemas of tools in few words: models read them with every request."""

from collections.abc import Mapping
from typing import Any

_NAMES = frozenset({"properties", "$defs", "definitions"})


def short(schema: Mapping[str, Any], *, null: bool) -> dict[str, Any]:
    """Return a JSON schema that says the same in fewer words, each type by one name.

    Titles repeat names. An argument that may be null may as well be left out, so a null says nothing there; and
    lists of types are refused by clients that turn schemas into another dialect.

    Args:
        schema: As pydantic writes it.
        null: Keep null as a choice; it matters in results.
    """
    made: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "title" or (name in ("default", "description") and value is None):
            continue
        if name in _NAMES:
            made[name] = {key: short(inner, null=null) for key, inner in value.items()}
        elif name == "anyOf":
            made |= _choices(value, null=null)
        elif isinstance(value, Mapping):
            made[name] = short(value, null=null)
        else:
            made[name] = value
    return made


def _choices(choices: list[Mapping[str, Any]], *, null: bool) -> dict[str, Any]:
    left = [short(one, null=null) for one in choices if null or one.get("type") != "null"]
    return left[0] if len(left) == 1 else {"anyOf": left}
