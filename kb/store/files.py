"""One entry as files: read strictly, written keeping comments."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NoReturn, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kb.errors import EntryFormatError
from kb.models.entry import EntryFile
from kb.store import content, layout
from kb.store.digest import entry_digest

README_LINES = 60
_MOST_DOTS = 64
"""In one line of facts: tomllib needs memory that grows with the square of a dotted key's parts."""
_DEEPEST = 16
"""Tables and arrays, or objects, in one another; no field of a format comes near."""
_INT64 = range(-(1 << 63), 1 << 63)
_OPERATOR_KINDS = frozenset({"kernel", "allocation", "comm"})
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters, text-direction marks and what is invisible: they let a file say one thing and show another."""
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Text-direction marks: all that is refused in code, which may hold a form feed and whatever a test needs."""


@dataclass(frozen=True)
class StoredEntry:
    """One entry version, as read from its folder."""

    id: str
    file: EntryFile
    facts: Mapping[str, object]
    """``entry.toml`` as plain JSON values."""
    readme: str
    files: Mapping[str, bytes]
    """Facts, readme and candidate files by name."""
    evidence: tuple[str, ...]
    """Names of records and outcomes."""
    digest: str

    @property
    def kind(self) -> str:
        """First part of the id."""
        return self.id.split("/", 1)[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all files, sorted."""
        return tuple(sorted((*self.files, *self.evidence)))

    @property
    def candidate(self) -> Mapping[str, bytes]:
        """The files that run."""
        return {name: body for name, body in self.files.items() if layout.is_candidate(name)}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime | date | time) else value


def _place(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _found(value: object) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"


def _expected(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    message = message.replace("a valid dictionary or instance of ", "a table: ")
    if error["type"] == "value_error":
        return message
    message = re.sub(r"^(String|List) should have ", lambda m: f"{m.group(1).lower()} with ", message)
    return f"expected {message}"


def _pydantic_line(error: ErrorDetails) -> str:
    place = _place(error["loc"]) or "the whole file"
    if error["type"] == "missing":
        return f"field {place}: expected a value, found none"
    if error["type"] == "extra_forbidden":
        return f"field {place}: expected no field of this name, found {_found(error['input'])}"
    found = (
        ""
        if isinstance(error["input"], dict) and error["type"] == "value_error"
        else f", found {_found(error['input'])}"
    )
    return f"field {place}: {_expected(error)}{found}"


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield every key and every value that is neither table nor array, with the field where it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield place, key
            yield from _leaves(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, place)
    else:
        yield place, value


def _unprintable(found: re.Match[str]) -> str:
    return f"expected printable text, found the character U+{ord(found.group()):04X}"


def _text_faults(facts: Mapping[str, object]) -> Iterator[str]:
    for place, text in _leaves(facts):
        if not isinstance(text, str):
            continue
        single = "." not in place
        found = _UNSAFE.search(text) or (re.search(r"[\n\t]", text) if single else None)
        if found is not None:
            yield f"field {place}: {_unprintable(found)}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key[:80]!r} stands there twice")
        made[key] = value
    return made


def _bomb(body: bytes) -> str | None:
    """Say why a text may not be given to the TOML parser, or None."""
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line.count(b".") > _MOST_DOTS:
            return f"expected at most {_MOST_DOTS} dots in a line, found {line.count(b'.'):,} in line {number}"
    return None


def _is_deep(value: object) -> bool:
    """Tell whether a value is nested deeply; without recursion, because a parser may go deeper than Python recurses."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [one for each in level if isinstance(each, dict) for one in each.values()] + [
            one for each in level if isinstance(each, list) for one in each
        ]
    return any(isinstance(one, dict | list) for one in level)


def _shape_fault(facts: Mapping[str, object]) -> str | None:
    """Say why nothing more may be done with parsed facts, or None."""
    if _is_deep(facts):
        return "expected TOML, found nesting that is too deep"
    for place, value in _leaves(facts):
        if isinstance(value, int) and value not in _INT64:
            return f"field {place}: expected an integer of at most 64 bits, found one of {value.bit_length():,}"
    return None


def strict_json(body: bytes) -> object:
    """Parse JSON without NaN, infinities and repeated keys.

    Args:
        body: UTF-8 text.

    Raises:
        ValueError: It is not such JSON; the message says where.
    """
    try:
        read: object = json.loads(
            body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates
        )
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error
    # How deep the parser itself goes depends on the Python.
    if _is_deep(read):
        raise ValueError("the nesting is too deep")
    return read


def parse_facts(body: bytes) -> tuple[EntryFile | None, dict[str, object], list[str]]:
    """Parse the text of an ``entry.toml``.

    Args:
        body: Its bytes.

    Returns:
        The model (None if it is broken), the plain dict, and one line per fault, without the file's name.
    """
    bomb = _bomb(body)
    if bomb is not None:
        return None, {}, [bomb]
    try:
        raw = tomllib.loads(body.decode("utf-8"))
    except RecursionError:
        return None, {}, ["expected TOML, found nesting that is too deep"]
    except ValueError as error:
        return None, {}, [f"expected TOML, found: {error}"]
    fault = _shape_fault(raw)
    if fault is not None:
        return None, {}, [fault]
    facts = cast("dict[str, object]", _plain(raw))
    faults = list(_text_faults(facts))
    try:
        model = EntryFile.model_validate(raw)
    except ValidationError as error:
        lines = [_pydantic_line(each) for each in error.errors(include_url=False, include_context=False)]
        return None, facts, lines + faults
    return model, facts, faults


def _kind_faults(path: layout.EntryPath, model: EntryFile, body: content.Content) -> Iterator[str]:
    for name in model.missing_for(path.kind):
        which = f"outcome {model.outcome}" if name == "negative" else f"kind {path.kind}"
        yield f"{layout.FACTS}: field {name}: expected a value for an entry of {which}, found none"
    if path.kind in _OPERATOR_KINDS and model.operator is not None and model.operator != path.topic:
        yield (
            f"{layout.FACTS}: field operator: expected {path.topic!r}, the name of the folder, found {model.operator!r}"
        )
    if model.entry_point is not None:
        name = model.entry_point.split(":", 1)[0]
        if name not in body.files and not any(fault.startswith(f"{name}: ") for fault in body.faults):
            yield f"{layout.FACTS}: field entry_point: expected a file {name} in the folder, found none"
    if path.kind == "config" and layout.CONFIG not in body.files:
        yield f"{layout.CONFIG}: the file is missing"


def _readme_faults(readme: str) -> Iterator[str]:
    lines = readme.count("\n") + (not readme.endswith("\n") and bool(readme))
    if lines > README_LINES:
        yield f"{layout.README}: expected at most {README_LINES} lines, found {lines}"
    found = _UNSAFE.search(readme.replace("\r\n", "\n"))
    if found is not None:
        yield f"{layout.README}: {_unprintable(found)}"


def _code_faults(body: content.Content) -> Iterator[str]:
    for name, raw in body.files.items():
        found = _BIDI.search(raw.decode("utf-8")) if layout.is_candidate(name) else None
        if found is not None:
            yield f"{name}: {_unprintable(found)}, which shows code in another order than it runs"


def _json_faults(body: content.Content) -> Iterator[str]:
    for name, raw in body.files.items():
        if name.endswith(".json"):
            try:
                strict_json(raw)
            except ValueError as error:
                yield f"{name}: expected JSON, found: {error}"


def inspect(body: content.Content, entry_id: str) -> tuple[StoredEntry | None, list[str]]:
    """Check the bytes of an entry's folder against all rules.

    Args:
        body: What :func:`kb.store.content.read` gave.
        entry_id: The id it has or is to have.

    Returns:
        The entry, None if anything is wrong, and every fault, one line each, beginning with the file's name.

    Raises:
        EntryFormatError: The id is none.
    """
    path = layout.parse_id(entry_id)
    faults = list(body.faults)
    raw = body.files.get(layout.FACTS)
    model, facts, lines = parse_facts(raw) if raw is not None else (None, {}, [])
    faults.extend(f"{layout.FACTS}: {line}" for line in lines)
    if model is not None:
        faults.extend(_kind_faults(path, model, body))
    readme = body.files.get(layout.README, b"").decode("utf-8-sig").replace("\r\n", "\n")
    faults.extend(_readme_faults(readme))
    faults.extend(_code_faults(body))
    faults.extend(_json_faults(body))
    if faults or model is None:
        return None, [layout.printable(fault) for fault in faults]
    candidate = {name: text for name, text in body.files.items() if layout.is_candidate(name)}
    digest = entry_digest(model, candidate)
    return StoredEntry(str(path), model, facts, readme, body.files, body.evidence, digest), []


def format_error(shown: str, faults: list[str]) -> EntryFormatError:
    """Make the one error that stands for all faults of an entry.

    Args:
        shown: The folder as the user knows it.
        faults: Lines of :func:`inspect`; at least one.
    """
    name, _, rest = faults[0].partition(": ")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    place = f"{shown}/{name}" if rest else shown
    return EntryFormatError(f"{place}: {rest or name}{more}", hint=f"mend {place}, then kb check")


def read(folder: Path, entry_id: str, *, shown: str | None = None) -> StoredEntry:
    """Read one entry strictly.

    Args:
        folder: Its folder.
        entry_id: The id it has or is to have.
        shown: How to name the folder in an error; its path if None.

    Raises:
        EntryFormatError: Something breaks the format; names file, field, what was expected and what was found.
    """
    stored, faults = inspect(content.read(folder), entry_id)
    if stored is None:
        raise format_error(shown or str(folder), faults)
    return stored


def edit_facts(text: str, changes: Mapping[str, object]) -> str:
    """Change top-level fields in the text of an ``entry.toml``; comments and order stay.

    Args:
        text: The file's text.
        changes: Field → new value; None removes the field.

    Returns:
        The new text.

    Raises:
        EntryFormatError: The result breaks the format.
    """
    import tomlkit

    document = tomlkit.parse(text)
    for name, value in changes.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = value
    result = tomlkit.dumps(document)
    model, _, faults = parse_facts(result.encode("utf-8"))
    if model is None or faults:
        raise EntryFormatError(f"{layout.FACTS}: {layout.printable(faults[0])}")
    return result
