"""What is known of a kernel that was found in program text, whatever its language."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_TEXT = 200_000
"""Characters of a kernel with all that it needs."""
_COPYRIGHT = re.compile(
    r"(?im)^\s*(?:#|//|\*|/\*)?\s*((?:SPDX-FileCopyrightText|Copyright|\(c\)|©).{0,200}?)\s*(?:\*/)?$"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    kind: str
    """``pointer``, ``scalar`` or ``constant`` (known when it is compiled)."""
    type: str | None = None
    """As the text states it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel, with what stands around it in its file."""

    name: str
    language: str
    """A word of ``kb.models.vocabulary.LANGUAGES``."""
    text: str
    """The kernel and what it needs, in the order of the file."""
    lines: tuple[int, int]
    """First and last line of the kernel itself, from 1."""
    parameters: tuple[Parameter, ...]
    features: frozenset[str]
    """What its body and the functions that it calls do: words of ``rules/kernel_operators.toml``."""
    normal: str
    """The kernel and its helpers without comments, blanks and places: equal ones are the same kernel."""
    helpers: tuple[str, ...] = ()
    """Functions of the file that it calls, and constants that it reads."""
    launchers: tuple[str, ...] = ()
    """Functions that launch it."""
    elsewhere: tuple[str, ...] = ()
    """Names that it needs and that other files define."""
    configs: dict[str, object] | None = field(default=None, compare=False)
    """What its tuner may choose from."""


def copyright_lines(head: str) -> tuple[str, ...]:
    """Return the notices of copyright in the first lines of a file, each once: most licenses ask to keep them."""
    found = (" ".join(one.split()) for one in _COPYRIGHT.findall(head[:4096]))
    return tuple(dict.fromkeys(one for one in found if one.isprintable()))[:8]


def sliced(lines: list[str], spans: Iterable[tuple[int, int]]) -> str:
    """Put stretches of a file together in their order, two blank lines between those that do not touch.

    Args:
        lines: The file's lines with their ends.
        spans: First and last line each, from 1.
    """
    text: list[str] = []
    last = 0
    for first, end in sorted(set(spans)):
        start = max(first, last + 1)
        if start > end:
            continue
        if text and start > last + 1:
            text.append(
                "\n\n" if end - start > 1 or first != start else "\n" if lines[last - 1][:1] in "@di \t" else ""
            )
        text.extend(lines[start - 1 : end])
        if text[-1] and not text[-1].endswith("\n"):
            text.append("\n")
        last = end
    return "".join(text)
