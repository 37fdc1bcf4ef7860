"""Text for agents as a file of our own, or as a marked part of somebody else's file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kb.errors import ConfigError
from kb.service.kit.splices import Insert, State
from kb.values import sha256

_DIGITS = 16
_FILE = re.compile(r"<!-- kb agent kit ([0-9a-f]{16}): [^\n]* -->\n?\Z")
_BEGIN = re.compile(r"<!-- kb agent kit ([0-9a-f]{16}) begins: [^\r\n]* -->\r?\n")
_END = "<!-- kb agent kit ends -->"


@dataclass(frozen=True)
class _Prose:
    """What text has in common, whole file or part: there is a place for it anywhere, and it configures no servers."""

    file: str
    tool: str

    def holds(self, text: str) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        del text
        return True

    def servers(self, text: str) -> Mapping[str, object]:
        """See :class:`kb.service.kit.splices.Editor`."""
        del text
        return {}


@dataclass(frozen=True)
class OwnFile(_Prose):
    """A file that holds nothing else; its last line says who wrote it, and what it was then."""

    def state(self, text: str, value: object | None) -> State:
        """See :class:`kb.service.kit.splices.Editor`."""
        if not text.strip():
            return "absent"
        if value is not None and text == self._whole(str(value)):
            return "same"
        found = _FILE.search(text)
        if found is None:
            return "foreign"
        return "ours" if _digest(text[: found.start()]) == found.group(1) else "edited"

    @property
    def whole(self) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        return True

    def add(self, text: str, value: object) -> tuple[Insert, ...]:
        """See :class:`kb.service.kit.splices.Editor`; spaces that stand there stay below it."""
        del text
        return (Insert(0, self._whole(str(value))),)

    def replace(self, text: str, value: object) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        del text
        return self._whole(str(value))

    def remove(self, text: str, *, container: bool) -> str:
        """See :class:`kb.service.kit.splices.Editor`; all of it is ours."""
        del text, container
        return ""

    def _whole(self, body: str) -> str:
        return f"{body}<!-- kb agent kit {_digest(body)}: kb agent uninstall {self.tool} takes this file away -->\n"


@dataclass(frozen=True)
class Part(_Prose):
    """A part of a file between two marks."""

    def state(self, text: str, value: object | None) -> State:
        """See :class:`kb.service.kit.splices.Editor`."""
        found = self._found(text)
        if found is None:
            return "absent"
        digest, begin, end = found
        body = text[begin:end].replace("\r\n", "\n")
        if _digest(body) != digest:
            return "edited"
        return "same" if value is not None and body == str(value) else "ours"

    @property
    def whole(self) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        return False

    def add(self, text: str, value: object) -> tuple[Insert, ...]:
        """See :class:`kb.service.kit.splices.Editor`."""
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return (Insert(len(text), f"{gap}{self._whole(str(value))}\n".replace("\n", newline)),)

    def replace(self, text: str, value: object) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        newline = "\r\n" if "\r\n" in text else "\n"
        start, end = self._span(text)
        return text[:start] + self._whole(str(value)).replace("\n", newline) + text[end:]

    def remove(self, text: str, *, container: bool) -> str:
        """See :class:`kb.service.kit.splices.Editor`; takes the empty line before it along."""
        del container
        start, end = self._span(text)
        before, after = text[:start], text[end:].removeprefix("\r").removeprefix("\n")
        for newline in ("\r\n", "\n"):
            if before.endswith(newline * 2):
                return before.removesuffix(newline) + after
        return before + after

    def _whole(self, body: str) -> str:
        head = f"<!-- kb agent kit {_digest(body)} begins: kb agent uninstall {self.tool} takes this part out -->"
        return f"{head}\n{body}{_END}"

    def _span(self, text: str) -> tuple[int, int]:
        found = _BEGIN.search(text)
        assert found is not None  # noqa: S101 - asked for only where state() found it
        return found.start(), text.index(_END, found.end()) + len(_END)

    def _found(self, text: str) -> tuple[str, int, int] | None:
        begins = list(_BEGIN.finditer(text))
        if not begins:
            return None
        end = text.find(_END, begins[0].end())
        if len(begins) > 1 or end < 0:
            hint = "keep one part, from begins to ends; nothing was changed"
            raise ConfigError(f"{self.file}: the marks of the agent kit do not fit together", hint=hint)
        return begins[0].group(1), begins[0].end(), end


def _digest(body: str) -> str:
    return str(sha256(body.replace("\r\n", "\n").encode("utf-8")).hexdigest())[:_DIGITS]
