"""Writes the facts of an entry as TOML: for what machines import; what people write is edited with tomlkit.

tomlkit keeps comments and takes milliseconds an entry for it, which a hundred thousand imported entries do not need.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile("[\x7f\ud800-\udfff]")


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL; a lone surrogate has no place in a file.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04X}", json.dumps(value, ensure_ascii=False))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("expected a finite number")
        return repr(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items() if one is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(one) for one in value)}]"
    raise TypeError(f"expected a value that TOML has, found {type(value).__name__}")


def _is_table_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def dumps(facts: Mapping[str, object]) -> str:
    """Return the text of an ``entry.toml``: plain fields, then tables, then lists of tables; None is left out.

    Args:
        facts: Texts, numbers, booleans, dates, lists and mappings.

    Raises:
        ValueError: A number is not finite.
        TypeError: TOML has no such value.
    """
    plain: list[str] = []
    tables: list[str] = []
    for name, value in facts.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            rows = [f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None]
            tables += ["", f"[{_key(name)}]", *rows]
        elif _is_table_list(value):
            for one in value:  # type: ignore[attr-defined]
                rows = [f"{_key(key)} = {_value(inner)}" for key, inner in one.items() if inner is not None]
                tables += ["", f"[[{_key(name)}]]", *rows]
        else:
            plain.append(f"{_key(name)} = {_value(value)}")
    return "\n".join([*plain, *tables, ""])
