"""What becomes of one item of a source: drafts that passed the license gate, and what is to be said of the rest.

Nothing here depends on what was parsed before, so that it can run in any process (:mod:`kb.service.parsing_apart`).
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kb.errors import KbError, SourceFormatError
from kb.importers import license as licenses
from kb.importers.base import Context, Draft, Importer, Item, Skipped, sha256
from kb.importers.tree import MANIFEST


@dataclass(frozen=True)
class Line:
    """What became of one draft, or of one file that gave none."""

    state: str
    """``add``, ``update``, ``unchanged``, ``duplicate``, ``refused`` or ``left`` (nothing is wrong with it)."""
    path: str
    format: str | None
    file: str | None = None
    """Path in the source that was walked, where ``path`` is the one that its publisher gave it."""
    id: str | None = None
    version: int | None = None
    evidence: str | None = None
    license: str | None = None
    copy_of: str | None = None
    """Id of another entry with the same values: not a second result."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A line for the report."""

    line: Line
    files: tuple[str, ...] = ()
    """Files that it decides about; empty for the one that it names."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A draft that passed the license gate."""

    id: str
    values: str | None
    device: str | None
    body: bytes
    """Pickled: the importer's name, the draft and the paths of the item's files."""


Outcome = Noted | Accepted


@dataclass(frozen=True)
class Rules:
    """What the user said that bears on parsing."""

    context: Context = field(default_factory=Context)
    allow_licenses: frozenset[str] = frozenset()


def outcomes(importer: Importer, item: Item, rules: Rules) -> Iterator[Outcome]:
    """Parse one item and ask the license gate; one draft is held at a time.

    Args:
        importer: Who claimed it.
        item: What it claimed.
        rules: What the user said.
    """
    paths = tuple(each.path for each in item.files)
    made = False
    refused = None
    for found in _parsed(importer, item, rules.context):
        made = True
        if isinstance(found, Skipped):
            state = "refused" if found.refused else "left"
            # What stops an item as a whole stops all that belongs to it.
            whole = paths if found.path == item.path else ()
            yield Noted(Line(state, found.path, importer.name, reason=found.reason), whole)
            continue
        ruling = licenses.gate(found, also=rules.allow_licenses)
        if ruling.refused is not None:
            if refused != ruling.refused:  # one file can give hundreds of drafts of the same license
                refused = ruling.refused
                yield Noted(Line("refused", item.path, importer.name, license=ruling.license, reason=refused), paths)
            continue
        draft = replace(found, license=ruling.license, restrictions=(*found.restrictions, *ruling.restrictions))
        body = pickle.dumps((importer.name, draft, paths), protocol=pickle.HIGHEST_PROTOCOL)
        yield Accepted(draft.id, draft.values, draft.device, body)
    if not made:
        yield Noted(Line("left", item.path, importer.name, reason="it holds nothing to import"), paths)


def _parsed(importer: Importer, item: Item, context: Context) -> Iterator[Draft | Skipped]:
    """Parse one item; whatever goes wrong in it stops no other."""
    fault = _manifest_fault(item)
    if fault is not None:
        yield Skipped(item.path, fault)
        return
    try:
        yield from importer.parse(item, context)
    except KbError as error:
        yield Skipped(item.path, error.message)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        yield Skipped(item.path, f"{importer.name} cannot read it: {type(error).__name__}: {error}"[:300])
    except ImportError as error:
        yield Skipped(item.path, f"{importer.name} needs a package that is not installed: {error}")


def _manifest_fault(item: Item) -> str | None:
    """Refuse a file that is not the one that the collection's manifest describes."""
    for file in item.files:
        stated = item.tree.origin_of(file.path).sha256
        if stated is not None:
            try:
                body = item.tree.read(file.path)
            except SourceFormatError as error:
                return error.message
            if sha256(body) != stated:
                return f"its digest is not the one that {MANIFEST} states"
    return None
