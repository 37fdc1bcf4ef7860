"""Holds drafts against the entries that are there: what is new, what is an update, what is a duplicate or a copy."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kb.errors import EntryFormatError
from kb.importers.base import Draft, sha256
from kb.models.vocabulary import KINDS
from kb.store import content, files, layout, toml
from kb.store.content import Content

_SUFFIX_DIGITS = 6


@dataclass(frozen=True)
class Verdict:
    """What is to be done with a draft."""

    state: str
    """``add``, ``update``, ``unchanged``, ``duplicate`` or ``refused``."""
    id: str
    version: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """All files of the entry's folder, evidence that is there included; only for ``add`` and ``update``."""
    copy_of: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Original:
    """The entry among several with the same values that the others are called copies of."""

    id: str
    device: str | None


class Shelf:
    """What is known of the entries that are there and of the drafts of this import; digests only, never bodies."""

    def __init__(self, entries: Path) -> None:
        self._entries = entries
        self._taken: dict[str, str] = {}
        self._contents: dict[bytes, str] = {}
        self._originals: dict[bytes, _Original] = {}
        self._used: set[str] = set()
        self.drafts = 0
        """Drafts expected."""
        for name in _existing(entries):
            self._taken[layout.same_name(name)] = name

    def expect(self, id_: str, *, values: str | None, device: str | None) -> None:
        """Note a draft that will come, so that copies are known before the first one is judged.

        Args:
            id_: Its id.
            values: Digest of its values, or None.
            device: Whom they are for.
        """
        self.drafts += 1
        if values is not None:
            self._originals.setdefault(bytes.fromhex(values), _Original(id_, device))

    def judge(self, draft: Draft) -> Verdict:
        """Say what is to be done with a draft.

        Args:
            draft: One that passed the license gate.
        """
        digest = bytes.fromhex(draft.content)
        if digest in self._contents:
            return Verdict("duplicate", self._contents[digest], reason=f"the same as {self._contents[digest]}")
        name = self._name(draft)
        self._contents[digest] = name
        try:
            return self._held_against(name, draft)
        except EntryFormatError as error:
            return Verdict("refused", name, reason=error.message)

    def _name(self, draft: Draft) -> str:
        """Return the id under which a draft goes in: its own, or with a mark of its source where that one is taken."""
        for name in (draft.id, f"{draft.id}-{_mark(draft)}"):
            taken = self._taken.setdefault(layout.same_name(name), name)
            if taken == name and name not in self._used and self._is_of(name, draft):
                self._used.add(name)
                return name
        return f"{draft.id}-{_mark(draft)}"

    def _is_of(self, name: str, draft: Draft) -> bool:
        """Tell whether an id is free, or taken by an earlier version of this very draft."""
        source = _source_of(layout.folder_of(self._entries, name))
        if source is None:
            return True
        same_place = source.get("path") == draft.provenance.path and _names(source, draft.provenance.repository)
        return same_place or source.get("sha256") == draft.provenance.sha256

    def _held_against(self, name: str, draft: Draft) -> Verdict:
        folder = layout.folder_of(self._entries, name)
        copy_of = self._copy_of(name, draft)
        old = _facts_of(folder)
        if old is None:
            made = compose(draft, version=1, copy_of=copy_of)
            _check(name, made)
            return Verdict("add", name, 1, made, copy_of.id if copy_of else None)
        version = old.get("version")
        source = old.get("source", {})
        if source.get("sha256") == draft.provenance.sha256 and source.get("note") == draft.provenance.note:
            return Verdict("unchanged", name, version, copy_of=copy_of.id if copy_of else None)
        if _says_the_same(folder, old, draft, copy_of):
            return Verdict("unchanged", name, version, copy_of=copy_of.id if copy_of else None)
        number = version + 1 if isinstance(version, int) else 1
        made = compose(draft, version=number, copy_of=copy_of, withdrawn=old.get("withdrawn"))
        evidence = {each: (folder / each).read_bytes() for each in content.read(folder).evidence}
        _check(name, made)
        return Verdict("update", name, number, {**made, **evidence}, copy_of.id if copy_of else None)

    def _copy_of(self, name: str, draft: Draft) -> _Original | None:
        if draft.values is None:
            return None
        original = self._originals.get(bytes.fromhex(draft.values))
        return original if original is not None and original.id not in (draft.id, name) else None


def _existing(entries: Path) -> list[str]:
    found = []
    for kind in KINDS:
        place = entries / kind
        if place.is_dir():
            found += [
                f"{kind}/{topic.name}/{slug.name}"
                for topic in sorted(place.iterdir())
                if topic.is_dir()
                for slug in sorted(topic.iterdir())
            ]
    return found


def _mark(draft: Draft) -> str:
    text = f"{draft.provenance.repository}\0{draft.provenance.path}"
    return sha256(text.encode("utf-8", "surrogatepass"))[:_SUFFIX_DIGITS]


def _facts_of(folder: Path) -> dict[str, Any] | None:
    path = folder / layout.FACTS
    if not path.is_file():
        return None
    try:
        return tomllib.loads(content.read_file(path, content.MAX_FACTS_BYTES).decode("utf-8"))
    except ValueError as error:
        raise EntryFormatError(f"{folder.name}/{layout.FACTS}: expected TOML, found: {error}") from error


def _says_the_same(folder: Path, old: Mapping[str, Any], draft: Draft, copy_of: _Original | None) -> bool:
    """Tell whether an entry would get the same files and facts again: something else in its source changed."""
    made = compose(draft, version=1, copy_of=copy_of, withdrawn=old.get("withdrawn"))
    new = tomllib.loads(made[layout.FACTS].decode("utf-8"))
    told = ("version", "source")
    if {key: old[key] for key in old if key not in told} != {key: new[key] for key in new if key not in told}:
        return False
    candidates = {each for each in content.read(folder).files if each not in (layout.FACTS, layout.README)}
    return candidates == set(draft.files) and all(
        (folder / each).read_bytes() == body for each, body in draft.files.items()
    )


def _source_of(folder: Path) -> Mapping[str, Any] | None:
    facts = _facts_of(folder)
    if facts is None:
        return {} if folder.is_dir() else None
    source = facts.get("source", {})
    return source if isinstance(source, dict) else {}


def _names(source: Mapping[str, Any], repository: str) -> bool:
    return str(source.get("origin", "")) == repository


def compose(
    draft: Draft, *, version: int, copy_of: _Original | None = None, withdrawn: object = None
) -> dict[str, bytes]:
    """Return all files of the entry that a draft becomes.

    Args:
        draft: The draft.
        version: Version of the entry.
        copy_of: The entry whose values it repeats.
        withdrawn: A withdrawal that is there already and stays.
    """
    source = draft.provenance
    restrictions = list(draft.restrictions)
    facts = dict(draft.facts)
    if copy_of is not None:
        other = f" for {copy_of.device}" if copy_of.device != draft.device and copy_of.device else ""
        restrictions.insert(0, f"The same values as {copy_of.id}{other}: a copy, not a second result")
        facts["tags"] = [*facts.get("tags", ()), "copied-values"]
    plain = {key: value for key, value in facts.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in facts.items() if isinstance(value, Mapping)}
    made = {
        "schema": 1,
        "version": version,
        **plain,
        "license": draft.license,
        **({"restrictions": restrictions} if restrictions else {}),
        **({"withdrawn": withdrawn} if withdrawn else {}),
        "source": {
            "origin": source.repository,
            "url": source.url,
            "commit": source.commit,
            "path": source.path,
            "sha256": source.sha256,
            "note": source.note,
        },
        **tables,
    }
    readme = draft.readme if draft.readme.endswith("\n") else f"{draft.readme}\n"
    return {
        layout.FACTS: toml.dumps(made).encode("utf-8", "replace"),
        layout.README: readme.encode("utf-8", "replace"),
        **draft.files,
    }


def _check(name: str, made: Mapping[str, bytes]) -> None:
    """Hold an entry against all rules that ``kb check`` knows, before it is written.

    Raises:
        EntryFormatError: It breaks one of them.
    """
    faults = [f"{each}: {fault}" for each in made if (fault := layout.file_fault(each)) is not None]
    faults += [f"{each}: larger than an entry's file may be" for each, body in made.items() if len(body) > _limit(each)]
    faults += [f"{each}: expected text, found a NUL byte" for each, body in made.items() if b"\0" in body]
    stored, more = files.inspect(Content(dict(made), (), tuple(faults)), name)
    if stored is None:
        raise EntryFormatError(f"it makes no valid entry: {more[0]}")


def _limit(name: str) -> int:
    return {layout.FACTS: content.MAX_FACTS_BYTES, layout.README: content.MAX_README_BYTES}.get(
        name, content.MAX_FILE_BYTES
    )
