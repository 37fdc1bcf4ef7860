"""Plain text for terminals, out of what a search or the catalogue returns. Standard library only.

Entries come from anywhere: whatever a terminal would obey in them (escapes, controls, direction marks) is replaced.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from kb.models.hit import Answer, Best, Hit
from kb.units import format_figure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_DEFAULT_WIDTH = 100
_NARROWEST = 40
_WIDEST = 1_000


def neutral(text: str, *, lines: bool = False) -> str:
    """Return text that a terminal only shows.

    Args:
        text: Anything.
        lines: Keep line ends and tabs; otherwise they become blanks.
    """
    if text.isprintable():
        return text
    kept = []
    for character in text:
        if character.isprintable():
            kept.append(character)
        elif character in "\n\t":
            kept.append(character if lines else " ")
        elif character.isspace() and ord(character) > 0xFF:
            kept.append(" ")
        else:
            kept.append(" " if character == "\r" else _UNKNOWN)
    return "".join(kept)


def terminal_width() -> int:
    """Return the width to write for: ``COLUMNS``, else the terminal's, else 100; from 40 to 1,000 columns."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and named.strip("0"):
        return max(_NARROWEST, int(named) if len(named) < len(str(_WIDEST)) else _WIDEST)
    try:
        return max(_NARROWEST, os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def cells(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def shorten(text: str, width: int) -> str:
    """Cut a text to a width, with an ellipsis if anything was lost."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    used = 1
    for character in text:
        used += cells(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def figure(best: Best) -> str:
    """Write a figure with its device, its baseline and who says so; a measured one also with regime and workload."""
    where = f" on {best.device}" if best.device else ""
    how = f" ({best.regime}; {best.workload})" if best.regime else ""
    against = f", {best.speedup:.3g}x {best.baseline}" if best.speedup is not None and best.baseline else ""
    floor = f", {100 * best.roofline:.0f} % of the roofline" if best.roofline is not None else ""
    origin = "as published" if best.source is not None else "measured"
    stale = f", stale: {best.stale}" if best.stale else ""
    return f"{best.metric} {format_figure(best.value, best.unit)}{where}{how}{against}{floor} ({origin}{stale})"


def stands(level: str, freshness: str, device: str | None) -> str:
    """Write what stands for an entry: ``measured, fresh on NVIDIA H200``."""
    said = level if freshness == "unknown" else f"{level}, {freshness}"
    return f"{said} on {device}" if device else said


def answer(found: Answer, *, width: int) -> Iterator[str]:
    """Yield the lines of a search's answer."""
    read = [f"{facet} {', '.join(values)}" for facet, values in found.facets.items()]
    if read:
        yield shorten(neutral(f"read as: {'; '.join(read)}"), width)
    if found.expansions:
        yield shorten(neutral(f"also looked for: {', '.join(found.expansions)}"), width)
    if found.empty_because is not None:
        yield neutral(f"nothing found: {found.empty_because}")
        return
    for place, hit in enumerate(found.hits, start=1):
        yield from _hit(place, hit, width)


def _hit(place: int, hit: Hit, width: int) -> Iterator[str]:
    name = f"{place:>2}  {neutral(hit.id)}@{hit.version}"
    title = neutral(hit.title)
    if cells(name) + 2 + cells(title) <= width:
        yield f"{name}  {title}"
    else:
        yield name
        yield "    " + shorten(title, width - 4)
    parts = [stands(hit.evidence, hit.freshness, hit.evidence_device)]
    if hit.transfer is not None:
        parts.insert(0, f"transfer {hit.transfer}")
    if hit.outcome != "works":
        parts.insert(0, hit.outcome)
    if hit.best is not None:
        parts.append(figure(hit.best))
    parts.append(hit.license)
    parts.extend(hit.restrictions)
    yield "    " + shorten(neutral("; ".join(parts)), width - 4)
    yield "    " + shorten(neutral(f"why: {'; '.join(hit.why)}"), width - 4)


def listing(entries: Sequence[Mapping[str, Any]], *, width: int) -> Iterator[str]:
    """Yield one aligned line an entry."""
    names = [neutral(f"{entry['id']}@{entry['version']}") for entry in entries]
    marks = [_mark(entry) for entry in entries]
    first = max((cells(name) for name in names), default=0)
    second = max((len(mark) for mark in marks), default=0)
    for name, mark, entry in zip(names, marks, entries, strict=True):
        line = f"{name}{' ' * (first - cells(name))}  {mark:<{second}}  {neutral(str(entry['title']))}"
        yield shorten(line, width).rstrip()


def evidence_listing(entries: Sequence[Mapping[str, Any]], *, width: int) -> Iterator[str]:
    """Yield two lines an entry: what is proven of it and where, and below it the best figure, if there is one."""
    names = [neutral(f"{entry['id']}@{entry['version']}") for entry in entries]
    edge = max((cells(name) for name in names), default=0)
    for name, entry in zip(names, entries, strict=True):
        said = [stands(entry["evidence"], entry["freshness"], entry["evidence_device"])]
        said += [entry["outcome"]] if entry["outcome"] != "works" else []
        said += [f"transfer {entry['transfer']}"] if entry["transfer"] else []
        said += ["withdrawn"] if entry["withdrawn"] else []
        yield shorten(f"{name}{' ' * (edge - cells(name))}  {neutral('; '.join(said))}", width)
        if entry["best"] is not None:
            yield shorten(neutral(f"    {figure(Best(**entry['best']))}"), width)


def _mark(entry: Mapping[str, Any]) -> str:
    if entry["withdrawn"] is not None:
        return "withdrawn"
    mark = entry["evidence"] if entry["outcome"] == "works" else entry["outcome"]
    if entry.get("freshness") in ("stale", "refuted"):
        mark = f"{mark}, {entry['freshness']}"
    return f"{mark}, {entry['transfer']}" if entry.get("transfer") else str(mark)


def entry(found: Mapping[str, Any], *, width: int) -> Iterator[str]:
    """Yield everything known of one entry: its facts by name, its files, its prose."""
    facts = dict(found["facts"])
    for name in ("schema", "version", "title", "summary"):
        facts.pop(name, None)
    yield neutral(f"{found['id']}@{found['version']}")
    yield neutral(str(found["title"]))
    yield neutral(str(found["summary"]))
    yield ""
    rows = [*_proof(found), *_flat(facts), ("digest", found["digest"])]
    rows.append(("files", ", ".join(found["files"])))
    edge = min(28, max(len(name) for name, _ in rows))
    for name, value in rows:
        yield from _field(neutral(name), neutral(str(value)), edge, width)
    if found["readme"].strip():
        yield ""
        yield from neutral(found["readme"], lines=True).rstrip().split("\n")


def _proof(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "evidence", stands(found["evidence"], found.get("freshness", "unknown"), found.get("evidence_device"))
    for place, cell in enumerate(found.get("cells", ()), start=1):
        where = f"{cell['device']} ({cell['regime']})" if cell["regime"] else cell["device"]
        why = f": {'; '.join(cell['reasons'])}" if cell["reasons"] else ""
        yield f"evidence.{place}", f"{where}, {cell['when'][:10]}: {cell['level']}, {cell['freshness']}{why}"
    if found.get("best") is not None:
        yield "best", figure(Best(**found["best"]))
    for place, line in enumerate(found.get("ignored", ()), start=1):
        yield f"ignored.{place}", line


def _field(name: str, value: str, edge: int, width: int) -> Iterator[str]:
    room = max(20, width - edge - 2)
    line = ""
    label = name
    for word in value.split(" "):
        if line and cells(line) + 1 + cells(word) > room:
            yield f"{label:<{edge}}  {line}"
            label, line = "", word
        else:
            line = f"{line} {word}" if line else word
    yield f"{label:<{edge}}  {line}".rstrip()


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted names and texts of nested facts; empty ones are left out."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{name}.")
        elif isinstance(inner, list) and any(isinstance(one, Mapping) for one in inner):
            for place, one in enumerate(inner, start=1):
                yield f"{name}.{place}", ", ".join(f"{part} = {text}" for part, text in _flat(one))
        elif isinstance(inner, list):
            if inner:
                yield name, ", ".join(map(str, inner))
        elif inner is not None:
            yield name, str(inner)
