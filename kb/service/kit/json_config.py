"""One named server in a tool's JSON file, put in and taken out without touching anything else."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kb.errors import ConfigError
from kb.service.kit import jsonc
from kb.service.kit.jsonc import Member, Object
from kb.service.kit.ours import NAME, is_ours
from kb.service.kit.splices import Insert, State

_TWO = "  "


@dataclass(frozen=True)
class JsonConfig:
    """The member ``kb`` of one object in a JSON file."""

    container: str
    """Name of the object that holds the servers: ``mcpServers`` or ``servers``."""
    file: str
    """For errors."""

    def state(self, text: str, value: object | None) -> State:
        """See :class:`kb.service.kit.splices.Editor`."""
        _, member = self._found(text)
        if member is None:
            return "absent"
        if value is not None and member.value == value:
            return "same"
        return "ours" if is_ours(member.value) else "foreign"

    @property
    def whole(self) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        return False

    def holds(self, text: str) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        root = jsonc.root_of(text, self.file)
        return root is not None and self._holder(root) is not None

    def servers(self, text: str) -> Mapping[str, object]:
        """See :class:`kb.service.kit.splices.Editor`."""
        root = jsonc.root_of(text, self.file)
        holder = None if root is None else self._holder(root)
        return {} if holder is None else {one.key: one.value for one in holder.members}

    def add(self, text: str, value: object) -> tuple[Insert, ...]:
        """See :class:`kb.service.kit.splices.Editor`."""
        root = jsonc.root_of(text, self.file)
        newline = _newline(text)
        if root is None:
            whole = json.dumps({self.container: {NAME: value}}, indent=2, ensure_ascii=False)
            head = "" if not text or text.endswith("\n") else newline
            return (Insert(len(text), f"{head}{whole}\n".replace("\n", newline)),)
        holder = self._holder(root)
        if holder is None:
            return self._put(text, root, self.container, {NAME: value}, unit=_unit(text, root))
        return self._put(text, holder, NAME, value, unit=_unit(text, root))

    def replace(self, text: str, value: object) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        root, member = self._found(text)
        if root is None or member is None:
            raise ConfigError(f"{self.file}: there is no server {NAME}", hint="kb agent install again")
        indent = _indent(text, member.start)
        made = _written(value, indent, _unit(text, root), _newline(text)) if indent is not None else _compact(value)
        return text[: member.value_start] + made + text[member.end :]

    def remove(self, text: str, *, container: bool) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        root, member = self._found(text)
        if root is None or member is None:
            return text
        holder = self._holder(root)
        assert holder is not None  # noqa: S101 - the member was found in it
        left = _taken_out(text, holder, member, self.file)
        if not container:
            return left
        root = jsonc.root_of(left, self.file)
        outer = None if root is None else root.named(self.container, self.file)
        if root is None or outer is None or outer.inner is None or left[outer.value_start : outer.end] != "{}":
            return left
        return _taken_out(left, root, outer, self.file)

    def _found(self, text: str) -> tuple[Object | None, Member | None]:
        root = jsonc.root_of(text, self.file)
        holder = None if root is None else self._holder(root)
        return root, None if holder is None else holder.named(NAME, self.file)

    def _holder(self, root: Object) -> Object | None:
        found = root.named(self.container, self.file)
        if found is None:
            return None
        if found.inner is None:
            hint = "mend the file; nothing was changed"
            raise ConfigError(f"{self.file}: expected {self.container!r} to be an object", hint=hint)
        return found.inner

    def _put(self, text: str, holder: Object, key: str, value: object, *, unit: str) -> tuple[Insert, ...]:
        newline = _newline(text)
        name = json.dumps(key)
        if not holder.members:
            at, rest = _after_comments(text, holder.start + 1, holder.end, self.file)
            outer = _indent(text, holder.start) or ""
            inside = outer + unit
            end = "" if "\n" in rest else newline + outer
            return (Insert(at, f"{newline}{inside}{name}: {_written(value, inside, unit, newline)}{end}"),)
        last = holder.members[-1]
        comma = () if last.comma is not None else (Insert(last.end, ","),)
        at, _ = _after_comments(text, last.end if last.comma is None else last.comma + 1, holder.end, self.file)
        found = _indent(text, holder.members[0].start)
        tail = "," if last.comma is not None else ""
        if found is None and "//" not in text[last.end : at]:
            return (*comma, Insert(at, f" {name}: {_compact(value)}{tail}"))
        inside = found if found is not None else unit
        return (*comma, Insert(at, f"{newline}{inside}{name}: {_written(value, inside, unit, newline)}{tail}"))


def _after_comments(text: str, start: int, end: int, file: str) -> tuple[int, str]:
    """Return the offset after the last comment of a part, and the spaces that follow it."""
    at = start
    for one in jsonc.tokens(text, start, end, file):
        if one.kind == "comment":
            at = one.end
    return at, text[at:end]


def _taken_out(text: str, holder: Object, member: Member, file: str) -> str:
    """Return a text without a member: with the spaces before it, and one comma."""
    place = holder.members.index(member)
    before = holder.members[place - 1] if place else None
    begin = holder.start + 1 if before is None else (before.comma or before.end) + 1
    start = member.start
    for one in jsonc.tokens(text, begin, member.start, file):
        start = one.start if one.kind == "space" else member.start
    end = member.end if member.comma is None else member.comma + 1
    if before is None and len(holder.members) == 1:
        end = holder.end if not text[end : holder.end].strip() else end
    kept = text[:start]
    if member.comma is None and before is not None and before.comma is not None:
        kept = text[: before.comma] + text[before.comma + 1 : start]
    return kept + text[end:]


def _written(value: object, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str | None:
    """Return the spaces before something that begins its line; None if other things stand before it."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    found = re.match(r"[ \t]*", line)
    lead = found.group() if found else ""
    if lead == line:
        return lead if "\n" in text[:at] else None
    return None if text[at] == '"' else lead


def _unit(text: str, root: Object) -> str:
    """Return what one level is indented by."""
    found = _indent(text, root.members[0].start) if root.members else None
    return found or _TWO
