"""JSON lines as a stream: one line is held at a time, and the whole file is digested on the way."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.reading import object_of
from kb.importers.tree import Tree

MAX_STREAM_BYTES = 8 << 30
MAX_LINE_BYTES = 1 << 20
MAX_LINES = 5_000_000
_DEPTH = 11
"""A row goes into a list in an object of an entry, whose files may have 14 levels."""


def file_digest(tree: Tree, path: str, *, limit: int = MAX_STREAM_BYTES) -> tuple[str, int]:
    """Return the sha256 and the size in bytes of a file of any size; a megabyte of it is held at a time.

    Args:
        tree: The source.
        path: The file.
        limit: Most bytes that it may have.

    Raises:
        SourceFormatError: It cannot be read, is no regular file, or is larger.
    """
    state = hashlib.sha256()
    size = 0
    with tree.open(path) as file:
        while block := file.read(1 << 20):
            size += len(block)
            if size > limit:
                raise SourceFormatError(f"expected at most {limit:,} bytes, found more")
            state.update(block)
    return state.hexdigest(), size


def rows_of(
    tree: Tree, path: str, check: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file of JSON lines; empty lines are passed over.

    Args:
        tree: The source.
        path: The file.
        check: Returns a row as it is wanted, or raises SourceFormatError.

    Raises:
        SourceFormatError: With the number of the line: it is no JSON object within the limits, or ``check`` refuses it.
    """
    with tree.open(path) as file:
        for number in range(1, MAX_LINES + 2):
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            if number > MAX_LINES:
                raise SourceFormatError(f"expected at most {MAX_LINES:,} lines")
            if len(line) > MAX_LINE_BYTES:
                raise SourceFormatError(f"line {number}: expected at most {MAX_LINE_BYTES:,} bytes")
            if not line.strip():
                continue
            try:
                yield check(object_of(line, depth=_DEPTH))
            except SourceFormatError as error:
                raise SourceFormatError(f"line {number}: {error.message}") from error
