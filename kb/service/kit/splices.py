"""Edits that only add text, so that taking them out again gives back every byte that was there before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

State = Literal["absent", "same", "ours", "edited", "foreign"]
"""What stands in a file: nothing of this name, just what would be written, something that an earlier run wrote,
something that an earlier run wrote and somebody changed, or somebody else's."""


@dataclass(frozen=True)
class Insert:
    """Text that is put into another text."""

    at: int
    """Offset in the text as it was before any insertion, in characters."""
    text: str


class Editor(Protocol):
    """Knows one format: what of it is ours, and how that is put in and taken out."""

    def state(self, text: str, value: object | None) -> State:
        """Say what stands in a text.

        Args:
            text: The whole file; empty if there is none.
            value: What would be written; None if that does not matter.

        Raises:
            ConfigError: The text is not what the format says.
        """
        ...

    def add(self, text: str, value: object) -> tuple[Insert, ...]:
        """Return what has to be inserted where nothing of this name stands; offsets ascend."""
        ...

    def replace(self, text: str, value: object) -> str:
        """Return the text with a new value where one stands."""
        ...

    @property
    def whole(self) -> bool:
        """Whether all of the file is ours."""
        ...

    def holds(self, text: str) -> bool:
        """Tell whether what holds the server is there already."""
        ...

    def servers(self, text: str) -> Mapping[str, object]:
        """Return the servers that stand in a text, by name; none in prose."""
        ...

    def remove(self, text: str, *, container: bool) -> str:
        """Return the text without what stands there.

        Args:
            text: The whole file.
            container: Take out what held it as well, if nothing else is in there.
        """
        ...


def spliced(text: str, inserts: Sequence[Insert]) -> str:
    """Return a text with others put in."""
    pieces, last = [], 0
    for one in inserts:
        pieces += [text[last : one.at], one.text]
        last = one.at
    return "".join((*pieces, text[last:]))


def without(text: str, inserts: Sequence[tuple[int, int]]) -> str | None:
    """Return a text without what was put in, or None if it is shorter than that.

    Args:
        text: The text with everything in it.
        inserts: Offset in the text before any insertion, and length; ascending.
    """
    pieces, last, shift = [], 0, 0
    for at, length in inserts:
        begin = at + shift
        if not last <= begin <= begin + length <= len(text):
            return None
        pieces.append(text[last:begin])
        last = begin + length
        shift += length
    return "".join((*pieces, text[last:]))
