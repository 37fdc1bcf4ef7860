"""Split a Chrome trace into its events without ever holding more than a few megabytes of it.

The C scanner of the standard library decodes one event at a time from a window of text that is refilled. A streaming
parser (ijson on yajl2_c) was measured to be no faster, and would be one more dependency (docs/targets.md).
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from kb.importers.traces.opening import Limited
from kb.importers.traces.profile import malformed

_CHUNK = 4 << 20
_MOST_VALUE = 16 << 20
"""Characters of one event, or of one value beside the events."""
_NEXT = re.compile(r"[ \t\r\n]*([^ \t\r\n])")

Entry = tuple[str | None, Any]
"""None and an event, or the name and value of something that stands beside the events."""


class _Window:
    """Text that is read as it is needed."""

    def __init__(self, stream: Limited) -> None:
        self._stream = stream
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        # Control characters in strings are not refused here: names are checked where they are used.
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self.buffer = ""
        self.place = 0
        self.ended = False

    def refill(self) -> bool:
        """Read on; False if there is nothing more."""
        if self.ended:
            return False
        body = self._stream.read(_CHUNK)
        self.ended = not body
        self.buffer = self.buffer[self.place :] + self._text.decode(body, final=self.ended)
        self.place = 0
        return True

    def peek(self) -> str:
        """Return the next character that is no blank, and stand there; empty at the end."""
        while True:
            found = _NEXT.match(self.buffer, self.place)
            if found is not None:
                self.place = found.start(1)
                return found.group(1)
            self.place = len(self.buffer)
            if not self.refill():
                return ""

    def take(self, wanted: str, where: str) -> None:
        """Pass one character.

        Raises:
            SourceUnavailableError: Another one is there.
        """
        found = self.peek()
        if found != wanted:
            raise malformed(f"it ends {where}" if not found else f"expected {wanted!r} {where}, found {found!a}")
        self.place += 1

    def value(self, where: str) -> Any:  # noqa: ANN401 - JSON
        """Return the next value.

        Raises:
            SourceUnavailableError: It is no JSON, too large, nested too deeply, or cut off.
        """
        self.peek()
        while True:
            try:
                value, end = self._scan(self.buffer, self.place)
            except ValueError as error:
                if len(self.buffer) - self.place <= _MOST_VALUE and self.refill():
                    continue
                what = "a value is too large or broken" if not self.ended else "it ends in the middle, or is no JSON"
                raise malformed(f"{what}, {where}") from error
            except RecursionError as error:
                raise malformed(f"values are nested too deeply, {where}") from error
            # A number, alone, might go on in what is not read yet.
            if end == len(self.buffer) and not isinstance(value, dict | list | str) and self.refill():
                continue
            self.place = end
            return value


def entries(stream: Limited) -> Iterator[Entry]:
    """Yield events and what stands beside them, in the order of the file.

    Args:
        stream: A trace: an object with ``traceEvents``, or a list of events alone.

    Raises:
        SourceUnavailableError: It is no such trace.
    """
    window = _Window(stream)
    first = window.peek()
    if first == "[":
        yield from _events(window)
    elif first == "{":
        yield from _members(window)
    else:
        raise malformed("expected JSON with trace events")
    if window.peek():
        raise malformed("something follows after the end of the trace")


def _members(window: _Window) -> Iterator[Entry]:
    window.take("{", "at the start")
    while window.peek() != "}":
        name = window.value("between the members of the trace")
        if not isinstance(name, str):
            raise malformed("expected the name of a member of the trace")
        window.take(":", "after a name")
        if name == "traceEvents":
            if window.peek() != "[":
                raise malformed("expected a list of events")
            yield from _events(window)
        else:
            yield name, window.value(f"in {name[:40]!a}")
        if window.peek() != "}":
            window.take(",", "between the members of the trace")
    window.take("}", "at the end")


def _events(window: _Window) -> Iterator[Entry]:
    window.take("[", "before the events")
    number = 0
    while window.peek() != "]":
        event = window.value(f"in event {number}")
        if not isinstance(event, dict):
            raise malformed(f"event {number}: expected an object, found {type(event).__name__}")
        yield None, event
        number += 1
        if window.peek() != "]":
            window.take(",", f"after event {number - 1}")
    window.take("]", "after the events")
