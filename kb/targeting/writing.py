"""A target as the text of ``entry.toml`` and ``README.md``."""

import json
from collections.abc import Mapping
from typing import Any

from kb.models.documents import Target

_SCALARS = ("model", "devices", "device_count", "parallelism", "precision", "storage", "accuracy", "share_basis")
_TABLES = ("traffic", "goals", "accuracy_budget", "operators", "unnamed")


def _value(value: object) -> str:
    """Write one value of TOML; strings as JSON, whose escapes TOML shares."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    if isinstance(value, float):
        text = repr(value)
        return text[:-2] if text.endswith(".0") and abs(value) < 1e15 else text
    return _quoted(value)


def _quoted(value: object) -> str:
    """Write a string, a whole number or a truth; TOML wants U+007F escaped, JSON does not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _quoted(key)


def _said(value: object) -> bool:
    return value is not None and value not in ([], {}, ())


def _lines(fields: Mapping[str, Any], *, always: tuple[str, ...] = ()) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in fields.items() if _said(value) or name in always]


def facts_text(target: Target, head: Mapping[str, Any]) -> str:
    """Return ``entry.toml``.

    Args:
        target: What it describes.
        head: The other facts, in order: schema, version, title, summary, outcome, language, dtypes, tags, license,
            phase and source, a table.

    Returns:
        TOML that parses to exactly these facts.
    """
    plain = target.model_dump(mode="json", exclude_defaults=False)
    lines = _lines({name: value for name, value in head.items() if name != "source"})
    lines += ["", "[source]", *_lines(head["source"])]
    lines += ["", "[target]", *_lines({name: plain[name] for name in _SCALARS})]
    for table in _TABLES:
        for one in plain[table]:
            lines += ["", f"[[target.{table}]]", *_lines(one, always=("axes", "dtypes"))]
    return "\n".join(lines) + "\n"


def readme_text(target: Target, origin: str) -> str:
    """Return a short ``README.md`` that says what the target is and where most of its time goes."""
    ranked = sorted((row for row in target.operators if row.share), key=lambda row: (-(row.share or 0), row.name))
    lines = [f"# {target.model} on {', '.join(target.devices)}", ""]
    lines += [f"**The deployment.** {target.device_count} device(s), {target.precision}.", ""]
    for one in target.traffic:
        sizes = {"batch": one.batch_size, "input tokens": one.input_tokens, "context": one.context_len}
        shown = ", ".join(f"{what} {size:,}" for what, size in sizes.items() if size is not None)
        lines.append(f"- {one.name} ({one.phase}): {shown}")
    if ranked:
        lines += ["", "**Where the time goes.**", ""]
        for row in ranked[:10]:
            lines.append(f"- {row.name} (`{row.operator}`): {100 * (row.share or 0):.1f} % {row.share_from}")
    if target.unnamed:
        whole = sum(one.share for one in target.unnamed)
        lines += [
            "",
            f"**Not named.** {100 * whole:.1f} % of the time in {len(target.unnamed)} kernels; see entry.toml.",
        ]
    if target.share_basis:
        lines += ["", f"**Shares.** {target.share_basis}."]
    return "\n".join([*lines, "", f"**Source.** {origin}.", ""])
