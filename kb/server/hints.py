"""The next step, in the words of whoever asks: an agent or a program cannot type commands on the server's machine.

Errors are raised below all surfaces, and their hints name commands of the shell. Here these become the tool or the
route that does the same. What neither can do stays a command, and is said to be one for whoever runs the server.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

Surface = Literal["tools", "routes"]

_WHO = "whoever runs the server"
OWNER = f"{_WHO} can mend it: "
"""Stands before a command that a client cannot give."""

_ID = r"(?P<id>[\w./-]+/[\w./-]+)"

_SAME: Sequence[tuple[str, str, str]] = (
    (r"kb list --kind target", "search with kind = target", "GET /v1/targets"),
    (r"kb list --kind (?P<kind>\w+)", r"search with kind = \g<kind>", r"GET /v1/entries?kind=\g<kind>"),
    (r"kb list --operator (?P<op>\w+)", r"search with operator = \g<op>", r"GET /v1/entries?operator=\g<op>"),
    (r"kb list", "the resource kb://entries", "GET /v1/entries"),
    (r"kb operators lists them", "the resource kb://operators lists them", "GET /v1/operators lists them"),
    (r"kb operators (?P<op>[a-z]\w*)", r"get with id = operator/\g<op>", r"GET /v1/operators/\g<op>"),
    (r"kb operators", "the resource kb://operators", "GET /v1/operators"),
    (
        rf"kb show {_ID}@(?P<v>\d+)",
        r"get with id = \g<id> and version = \g<v>",
        r"GET /v1/entries/\g<id>?version=\g<v>",
    ),
    (r"kb show ID@(?P<v>\d+)", r"get with version = \g<v>", r"GET /v1/entries/ID?version=\g<v>"),
    (rf"kb show {_ID}", r"get with id = \g<id>", r"GET /v1/entries/\g<id>"),
    (
        rf"kb evidence {_ID} names its records",
        r"get with id = \g<id> and part = evidence names its records",
        r"GET /v1/entries/\g<id>/evidence names its records",
    ),
    (rf"kb evidence {_ID}", r"get with id = \g<id> and part = evidence", r"GET /v1/entries/\g<id>/evidence"),
    (r"kb seed TARGET", "seed with a target", "GET /v1/targets/TOPIC/SLUG/plan"),
    (r"kb search QUERY --limit (?P<n>\d+)", r"search with limit = \g<n>", r"GET /v1/search?q=QUERY&limit=\g<n>"),
    (r"search with kind = target", "search with kind = target", "GET /v1/targets"),
)
"""A command, the tool that does the same, and the route that does."""

_COMPILED = tuple((re.compile(rf"(?<![\w/]){one}(?![\w-])"), tool, route) for one, tool, route in _SAME)
_COMMAND = re.compile(
    r"(?<![\w/])(?:kb (?:--)?[a-z][a-z-]*(?![\w/])|pip install|chmod|git )|(?<![\w-])--[a-z][a-z-]+|\b(?:set|unset) KB_"
)


def worded(hint: str | None, surface: Surface) -> str | None:
    """Return a hint that a client can follow.

    Args:
        hint: As an error has it, in commands of the shell; None for none.
        surface: ``tools`` of an agent, or ``routes`` of HTTP.
    """
    if not hint or _WHO in hint:
        return hint
    said = hint
    for pattern, tool, route in _COMPILED:
        said = pattern.sub(tool if surface == "tools" else route, said)
    said = _OPTIONS.sub(_option, said)
    steps = said.split("; ")
    for place, step in enumerate(steps):
        if _COMMAND.search(step):
            return "; ".join((*steps[:place], f"{OWNER}{'; '.join(steps[place:])}"))
    return said


def noted(notes: Iterable[str], surface: Surface) -> tuple[str, ...]:
    """Return the notes of an answer, with options of commands as the arguments that a client has.

    Args:
        notes: As a search makes them.
        surface: As for :func:`worded`.
    """
    return tuple(str(worded(_BARE.sub(_flag, note), surface)) for note in notes)


_BARE = re.compile(r"(?<![\w-])--(?:(?P<flag>withdrawn)\b|(?P<name>device|operator|dtype|kind|arch)$)")
"""Options without a value: one that is a flag, and one that an answer proposes."""


def _flag(found: "re.Match[str]") -> str:
    return f"{found['flag']} = true" if found["flag"] else f"{found['name']} = NAME"


_OPTIONS = re.compile(r"(?<![\w-])--(device|operator|dtype|kind|arch|outcome|limit) (?=[\w])(?P<value>[\w:|/.]+)")
"""Options that are arguments of tools and parameters of routes under the same names."""


def _option(found: "re.Match[str]") -> str:
    # After a command that stays one its options stay with it.
    before = found.string[: found.start()]
    return found.group() if re.search(r"\bkb [a-z]", before) else f"{found.group(1)} = {found.group('value')}"


def stepwise(proven: dict[str, Any], surface: Surface) -> dict[str, Any]:
    """Return what is proven of an entry with its next steps worded for a client.

    Args:
        proven: Plain values of :class:`kb.service.evidence.Proven`.
        surface: As for :func:`worded`.
    """
    lines = [{**one, "next_step": worded(one["next_step"], surface)} for one in proven["lines"]]
    return {**proven, "lines": lines}
