"""Read JSON with comments and trailing commas, with the place of every member of the two outer levels."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kb.errors import ConfigError

DEEPEST = 200
"""Deepest nesting that is read."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<comment>//[^\r\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")
    |(?P<plain>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)
    |(?P<mark>[{}\[\]:,])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KEPT_DEPTH = 2


@dataclass(frozen=True)
class Token:
    """One piece of the text; ``kind`` is ``space``, ``comment``, ``text``, ``plain``, ``mark`` or ``end``."""

    kind: str
    start: int
    end: int


@dataclass
class Member:
    """One member of an object, with its place in the text."""

    key: str
    start: int
    """Of the key."""
    value: object
    value_start: int
    end: int
    """After the value."""
    inner: "Object | None" = None
    """Where the value is an object of the two outer levels."""
    comma: int | None = None
    """Offset of the comma after it."""


@dataclass
class Object:
    """An object of the two outer levels: offsets of its braces, and its members in order."""

    start: int
    end: int = 0
    members: list[Member] = field(default_factory=list)

    def named(self, key: str, file: str) -> Member | None:
        """Return the member of a name, or None.

        Raises:
            ConfigError: There are several.
        """
        found = [one for one in self.members if one.key == key]
        if len(found) > 1:
            raise ConfigError(f"{file}: {key!r} is there {len(found)} times", hint="keep one of them")
        return found[0] if found else None


def tokens(text: str, start: int, end: int, file: str) -> Iterator[Token]:
    """Yield the pieces of a part of a text, spaces and comments among them.

    Raises:
        ConfigError: Something in it is no JSON.
    """
    at = start
    while at < end:
        found = _TOKEN.match(text, at, end)
        if found is None:
            raise wrong(text, at, file, f"found {text[at : at + 12]!r}")
        yield Token(str(found.lastgroup), at, found.end())
        at = found.end()


def wrong(text: str, at: int, file: str, what: str) -> ConfigError:
    """Return the error that says where a text is no JSON."""
    line = text.count("\n", 0, at) + 1
    return ConfigError(f"{file}: line {line}: this is no JSON: {what}", hint="mend the file; nothing was changed")


def root_of(text: str, file: str) -> Object | None:
    """Return the outermost object of a text, or None if there is nothing but spaces and comments.

    Args:
        text: The whole file.
        file: Its name, for errors.

    Raises:
        ConfigError: It is no JSON, or the outermost value is no object.
    """
    reader = _Reader(text, file)
    if reader.now.kind == "end":
        return None
    _, found = reader.value(0)
    if reader.now.kind != "end":
        raise reader.wrong("something follows the end")
    if found is None:
        raise ConfigError(f"{file}: expected an object in braces", hint="mend the file; nothing was changed")
    return found


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._tokens = tokens(text, 0, len(text), file)
        self.now = Token("end", 0, 0)
        self._next()

    def wrong(self, what: str) -> ConfigError:
        """Return the error for where it stands."""
        return wrong(self._text, self.now.start, self._file, what)

    def value(self, depth: int) -> tuple[object, Object | None]:
        """Read one value; return it, and where it is an object of the outer levels, its places."""
        if depth > DEEPEST:
            raise self.wrong(f"nested deeper than {DEEPEST}")
        word = self._word()
        if self.now.kind in ("text", "plain"):
            return self._scalar(), None
        if word == "{":
            return self._object(depth)
        if word == "[":
            return self._array(depth), None
        raise self.wrong("a value is missing")

    def _object(self, depth: int) -> tuple[dict[str, object], Object | None]:
        made = Object(self.now.start)
        found: dict[str, object] = {}
        self._next()
        while self._word() != "}":
            if self.now.kind != "text":
                raise self.wrong("expected a name in quotes")
            start = self.now.start
            key = str(self._scalar())
            self._take(":")
            value_start = self.now.start
            value, inner = self.value(depth + 1)
            member = Member(key, start, value, value_start, self._end, inner)
            found[key] = value
            if depth < _KEPT_DEPTH:
                made.members.append(member)
            if self._word() == ",":
                member.comma = self.now.start
                self._next()
            elif self._word() != "}":
                raise self.wrong("expected , or }")
        made.end = self.now.start
        self._next()
        return found, made if depth < _KEPT_DEPTH else None

    def _array(self, depth: int) -> list[object]:
        found = []
        self._next()
        while self._word() != "]":
            found.append(self.value(depth + 1)[0])
            if self._word() == ",":
                self._next()
            elif self._word() != "]":
                raise self.wrong("expected , or ]")
        self._next()
        return found

    def _scalar(self) -> object:
        try:
            made: object = json.loads(self._word())
        except ValueError as error:
            raise self.wrong(str(error)) from error
        self._next()
        return made

    def _take(self, mark: str) -> None:
        if self._word() != mark:
            raise self.wrong(f"expected {mark}")
        self._next()

    def _word(self) -> str:
        return self._text[self.now.start : self.now.end]

    def _next(self) -> None:
        self._end = self.now.end
        for one in self._tokens:
            if one.kind not in ("space", "comment"):
                self.now = one
                return
        self.now = Token("end", len(self._text), len(self._text))
