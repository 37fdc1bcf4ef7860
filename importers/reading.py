"""Strict readers for what strangers wrote: every limit is checked before memory is spent, every refusal says why."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from kb.errors import SourceFormatError

MAX_JSON_BYTES = 16 << 20
"""Largest JSON file that is parsed; the largest known table of tuned parameters has a quarter of a megabyte."""
MAX_DEPTH = 32
"""Objects and arrays in one another."""
MAX_YAML_BYTES = 1 << 20
_MOST_YAML_NODES = 50_000
_INT64 = range(-(1 << 63), 1 << 63)
_MAX_CELL = 4096


def text_of(body: bytes) -> str:
    """Decode UTF-8.

    Raises:
        SourceFormatError: It is no UTF-8, or has a NUL byte.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceFormatError(f"expected UTF-8 text, found byte {body[error.start]:#04x} at {error.start}") from error
    if "\0" in text:
        raise SourceFormatError("expected text, found a NUL byte")
    return text


def _constant(name: str) -> NoReturn:
    raise SourceFormatError(f"expected JSON, found {name}, which is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise SourceFormatError(f"expected a number, found {text[:40]}, which is beyond what a float holds")
    return value


def _integer(text: str) -> int:
    if len(text) > 20 or (value := int(text)) not in _INT64:
        raise SourceFormatError(f"expected an integer of at most 64 bits, found one of {len(text)} digits")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise SourceFormatError(f"expected distinct keys, found {key[:80]!r} twice")
        seen.add(key)
    raise AssertionError("unreachable")


def depth_fault(value: object, most: int = MAX_DEPTH) -> str | None:
    """Say that a value is nested more than ``most`` deep, or None; does not recurse."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return None
    return f"expected at most {most} levels of nesting"


def json_of(body: bytes, *, infinity: bool = False, limit: int = MAX_JSON_BYTES, depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401 - plain JSON
    """Parse JSON.

    Args:
        body: UTF-8 text, with or without a byte-order mark.
        infinity: Let ``Infinity`` pass, which a tuner writes for a configuration that failed.
        limit: Most bytes.
        depth: Most levels of nesting.

    Raises:
        SourceFormatError: It is too large, truncated, nested too deep, has a key twice, or a number that is none.
    """
    if len(body) > limit:
        raise SourceFormatError(f"expected at most {limit:,} bytes of JSON, found {len(body):,}")

    def constant(name: str) -> float:
        if infinity and name == "Infinity":
            return math.inf
        _constant(name)

    try:
        value = json.loads(
            text_of(body),
            parse_constant=constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_distinct,
        )
    except RecursionError as error:
        raise SourceFormatError(f"expected at most {depth} levels of nesting") from error
    except ValueError as error:
        raise SourceFormatError(f"expected JSON, found: {error}") from error
    fault = depth_fault(value, depth)
    if fault is not None:
        raise SourceFormatError(fault)
    return value


def object_of(body: bytes, **limits: Any) -> dict[str, Any]:  # noqa: ANN401 - handed on to json_of
    """Parse JSON whose outermost value is an object; see :func:`json_of`.

    Raises:
        SourceFormatError: Likewise, or it is another value.
    """
    value = json_of(body, **limits)
    if not isinstance(value, dict):
        raise SourceFormatError(f"expected a JSON object, found {type(value).__name__}")
    return value


def yaml_of(body: bytes) -> Any:  # noqa: ANN401 - plain YAML
    """Parse YAML into plain values; no tags, and aliases only as far as they stay small.

    Args:
        body: UTF-8 text of at most 1 MiB.

    Raises:
        SourceFormatError: It is too large, no YAML, has foreign tags, or unfolds into too many nodes.
    """
    if len(body) > MAX_YAML_BYTES:
        raise SourceFormatError(f"expected at most {MAX_YAML_BYTES:,} bytes of YAML, found {len(body):,}")
    try:
        import yaml
    except ImportError as error:
        raise SourceFormatError("YAML needs the package pyyaml: pip install 'kernel-kb[tables]'") from error
    try:
        value = yaml.load(text_of(body), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe ones
    except yaml.YAMLError as error:
        raise SourceFormatError(f"expected YAML, found: {' '.join(str(error).split())[:200]}") from error
    except (RecursionError, ValueError) as error:
        raise SourceFormatError(f"expected YAML, found: {error}") from error
    _count_nodes(value)
    return value


def _count_nodes(value: object) -> None:
    """Refuse what aliases blow up: shared nodes are counted every time they are reached."""
    stack = [(value, 0)]
    count = 0
    while stack:
        one, depth = stack.pop()
        count += 1
        if count > _MOST_YAML_NODES or depth > MAX_DEPTH:
            raise SourceFormatError(
                f"expected at most {_MOST_YAML_NODES:,} nodes and {MAX_DEPTH} levels in a YAML file"
            )
        if isinstance(one, dict):
            stack.extend((inner, depth + 1) for pair in one.items() for inner in pair)
        elif isinstance(one, list):
            stack.extend((inner, depth + 1) for inner in one)


def csv_rows(body: bytes, *, most: int = 2_000_000) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV file with a header.

    Args:
        body: UTF-8 text.
        most: Most rows.

    Raises:
        SourceFormatError: A column stands there twice, a row has another number of cells, or a cell is too long.
    """
    reader = csv.reader(io.StringIO(text_of(body), newline=""), strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) != len(header) or not header:
            raise SourceFormatError("expected a header with distinct column names")
        for number, cells in enumerate(reader, start=2):
            if number > most:
                raise SourceFormatError(f"expected at most {most:,} rows")
            if len(cells) != len(header):
                raise SourceFormatError(f"line {number}: expected {len(header)} cells, found {len(cells)}")
            if any(len(cell) > _MAX_CELL for cell in cells):
                raise SourceFormatError(f"line {number}: expected cells of at most {_MAX_CELL:,} characters")
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise SourceFormatError(f"expected CSV, found: {error}") from error
