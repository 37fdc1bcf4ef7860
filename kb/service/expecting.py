"""Arguments of Python callers: what is no text or no number is said at once, by name, before anything is opened."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from kb.service.searching import Filters

_KNOWN: Mapping[str, type] = {one.name: bool if one.name == "withdrawn" else str for one in fields(Filters)}


def expect(name: str, value: object, *kinds: type, optional: bool = False) -> None:
    """Refuse a value of another type.

    Args:
        name: Of the argument.
        value: What was given.
        kinds: What it may be; a bool is no int.
        optional: None may be given too.

    Raises:
        TypeError: It is of none of these types.
    """
    if (value is None and optional) or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return
    wanted = " or ".join([*(one.__name__ for one in kinds), *(["None"] if optional else [])])
    raise TypeError(f"{name}: expected {wanted}, found {type(value).__name__}")


def expect_texts(name: str, value: object) -> None:
    """Refuse what is no list of texts, and a single text, which would be taken letter by letter.

    Args:
        name: Of the argument.
        value: What was given; None is fine.

    Raises:
        TypeError: It is something else.
    """
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name}: expected a list of str or None, found {type(value).__name__}")
    for one in value:
        expect(f"{name}: each", one, str)


def filters_of(given: Mapping[str, Any]) -> Filters:
    """Return filters that were given by name.

    Args:
        given: Names and values.

    Raises:
        TypeError: There is no such filter, or a value is of another type.
    """
    for name, value in given.items():
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise TypeError(f"there is no filter {name!r}: {meant}known: {', '.join(_KNOWN)}")
        expect(name, value, _KNOWN[name], optional=name != "withdrawn")
    return Filters(**given)
