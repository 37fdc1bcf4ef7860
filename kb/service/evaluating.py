"""Measure searches against graded queries: several ways to search side by side, among any number of made-up entries."""

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kb import catalogue
from kb.config import Root
from kb.errors import ConfigError, DeviceUnavailableError, EntryFormatError, RetrievalError
from kb.models.vocabulary import ENTRY_ID
from kb.retrieval import distractors, metrics
from kb.retrieval.filters import Scope
from kb.service.indexing import ensure_index, row_of
from kb.service.searching import Filters, scope_of
from kb.service.tiers import DEPTH, TIERS

HALVES = ("tune", "test", "all")
"""What may be looked at while tuning, what is measured once, and both together."""

MOST_DISTRACTORS = 100_000

Stage = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Shows the progress of one long step: called with its name, gives what is called with done and total."""

_BATCH = 500
_NAMES = tuple(one.name for one in fields(metrics.Quality))
_FIELDS = ("query", "relevant", "scope", "origin", "half")
_SCOPE = {one.name: bool if one.name == "withdrawn" else str for one in fields(Filters)}


@dataclass(frozen=True)
class Graded:
    """One query with its graded answers."""

    query: str
    relevant: Mapping[str, int]
    """Id to grade: 3 exactly what was wanted, 2 clearly useful, 1 related, 0 not."""
    filters: Filters
    half: str | None
    line: int
    """Where it stands in its file, from 1."""


@dataclass(frozen=True)
class Measured:
    """What came out for one tier."""

    tier: str
    qualities: tuple[metrics.Quality, ...]
    """In the order of the queries."""
    latencies_ms: tuple[float, ...]

    def mean(self, name: str) -> float:
        """Return the mean of one figure of :class:`kb.retrieval.metrics.Quality`."""
        return sum(self.figures(name)) / len(self.qualities)

    def figures(self, name: str) -> list[float]:
        """Return one figure of every query."""
        return [float(getattr(one, name)) for one in self.qualities]

    def against(self, other: "Measured") -> dict[str, metrics.Interval]:
        """Return the mean difference to another tier over the same queries, with 95 % intervals, by figure."""
        return {
            name: metrics.bootstrap([a - b for a, b in zip(self.figures(name), other.figures(name), strict=True)])
            for name in _NAMES
        }

    def to_json(self, other: "Measured | None" = None) -> dict[str, Any]:
        """Return the figures as plain JSON values.

        Args:
            other: What to compare with.
        """
        found: dict[str, Any] = {"tier": self.tier, **{name: round(self.mean(name), 4) for name in _NAMES}}
        found["latency_ms"] = {
            f"p{round(100 * share)}": round(metrics.percentile(self.latencies_ms, share), 3) for share in (0.5, 0.95)
        }
        if other is not None and other.tier != self.tier:
            intervals = {
                name: {key: round(value, 4) for key, value in asdict(interval).items()}
                for name, interval in self.against(other).items()
            }
            found["against"] = {"tier": other.tier, **intervals}
        return found


def read_queries(path: Path, *, half: str = "all") -> tuple[Graded, ...]:
    """Read graded queries, one JSON object a line: ``{"query", "relevant": {"ID": grade}, "scope"?, "half"?}``.

    Args:
        path: The file.
        half: Keep those of one half only; ``all`` keeps every one.

    Raises:
        ConfigError: The half is not known.
        EntryFormatError: The file cannot be read, a line is not as expected, or nothing is left.
    """
    if half not in HALVES:
        raise ConfigError(f"no half is called {half!r}", hint=f"one of {', '.join(HALVES)}")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise EntryFormatError(f"cannot read {path}: {reason}", hint='one {"query", "relevant"} a line') from error
    found = tuple(_Line(path, number).read(line) for number, line in enumerate(lines, start=1) if line.strip())
    kept = tuple(one for one in found if half in ("all", one.half))
    if not kept:
        what = "queries" if not found else f'query has "half": "{half}"'
        raise EntryFormatError(f"{path}: no {what}", hint="kb eval FILE --half all" if found else None)
    return kept


class _Line:
    """One line of the file, read strictly."""

    def __init__(self, path: Path, number: int) -> None:
        self.place = f"{path}, line {number}"
        self.number = number

    def wrong(self, field: str, expected: str, value: object) -> EntryFormatError:
        """Make the error for a value that is not as expected."""
        shown = json.dumps(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return EntryFormatError(f"{self.place}: {field}: expected {expected}, found {shown}")

    def read(self, line: str) -> Graded:
        """Read the text of the line."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EntryFormatError(f"{self.place}: expected a JSON object, found {error}") from error
        if not isinstance(value, dict):
            raise self.wrong("line", "a JSON object", value)
        for name in value:
            if name not in _FIELDS:
                raise self.wrong(name, f"one of the fields {', '.join(_FIELDS)}", name)
        query, half = value.get("query"), value.get("half")
        if not isinstance(query, str) or not query.strip():
            raise self.wrong("query", "text", query)
        if half not in (None, "tune", "test"):
            raise self.wrong("half", "tune or test", half)
        return Graded(query, self.relevant(value.get("relevant")), self.filters(value.get("scope")), half, self.number)

    def relevant(self, value: object) -> dict[str, int]:
        """Read the grades."""
        if not isinstance(value, dict) or not value:
            raise self.wrong("relevant", 'an object {"ID": grade} with at least one entry', value)
        for entry, grade in value.items():
            if not ENTRY_ID.fullmatch(entry):
                raise self.wrong("relevant", "ids such as kernel/rmsnorm/row-per-cta", entry)
            if isinstance(grade, bool) or not isinstance(grade, int) or not 0 <= grade < metrics.GRADES:
                raise self.wrong(f"relevant.{entry}", f"a grade from 0 to {metrics.GRADES - 1}", grade)
        if max(value.values()) == 0:
            raise self.wrong("relevant", "a grade above 0", value)
        return value

    def filters(self, value: object) -> Filters:
        """Read the scope."""
        if value is None:
            return Filters()
        if not isinstance(value, dict):
            raise self.wrong("scope", "an object of filters", value)
        for name, given in value.items():
            if name not in _SCOPE:
                raise self.wrong(f"scope.{name}", f"one of the filters {', '.join(_SCOPE)}", name)
            if not isinstance(given, _SCOPE[name]):
                raise self.wrong(f"scope.{name}", "true or false" if _SCOPE[name] is bool else "text", given)
        return Filters(**value)


def _silent(_name: str) -> AbstractContextManager[Callable[[int, int], None]]:
    return nullcontext(lambda _done, _total: None)


class _Grown(Root):
    """A knowledge base whose catalogue has what no file beside it has: whoever indexed it anew would empty it.

    That would happen as soon as a spec, a package or a setting of this machine changes during a measurement.
    """


@contextmanager
def among_distractors(root: Root, count: int, *, stage: Stage = _silent) -> Iterator[Root]:
    """Give a temporary knowledge base whose catalogue has the entries of another and made-up ones.

    Args:
        root: The knowledge base to measure; it is only read.
        count: How many entries are made up; none leaves the knowledge base as it is.
        stage: Shows the progress.

    Raises:
        ConfigError: The number is out of range.
    """
    if not 0 <= count <= MOST_DISTRACTORS:
        raise ConfigError(f"{count} distractors: expected 0 to {MOST_DISTRACTORS:,}", hint="--distractors 6000")
    if count == 0:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="kb-eval-") as folder:
        grown = _Grown(Path(folder))
        file = grown.path / ".kb" / catalogue.FILE
        file.parent.mkdir()
        grown.entries.mkdir()
        with closing(catalogue.open_reader(ensure_index(root))) as source, closing(sqlite3.connect(file)) as target:
            source.backup(target)
            first = 1 + (source.execute(f"SELECT max(rowid) FROM {catalogue.ENTRY}").fetchone()[0] or 0)  # noqa: S608
        with stage(f"making up {count:,} entries") as progress:
            _add_distractors(file, count, first, progress)
            _state(file, catalogue.tree_state(grown.entries))
        yield grown


def _add_distractors(file: Path, count: int, first: int, progress: Callable[[int, int], None]) -> None:
    from kb.models.entry import EntryFile
    from kb.store.files import StoredEntry
    from kb.store.writer import CatalogueWriter

    with CatalogueWriter(file, fresh=False) as writer:
        batch = []
        for place, made in enumerate(distractors.generate(count)):
            entry = EntryFile.model_validate(made.facts)
            stored = StoredEntry(made.id, entry, made.facts, made.readme, files={}, evidence=(), digest="0" * 64)
            batch.append((first + place, row_of(stored), "made up", made.id))
            if len(batch) == _BATCH or place + 1 == count:
                writer.put(batch)
                batch = []
                progress(place + 1, count)


def _state(file: Path, tree: str) -> None:
    """Say that the catalogue is that of the empty folder beside it, so that nobody brings it up to date."""
    from kb.store.writer import CatalogueWriter

    with CatalogueWriter(file, fresh=False) as writer:
        writer.set_meta({"tree": tree})


def evaluate(
    root: Root, queries: Sequence[Graded], tiers: Sequence[str], *, stage: Stage = _silent
) -> tuple[Measured, ...]:
    """Run every query through every tier.

    Args:
        root: The knowledge base, from :func:`among_distractors` or as it is.
        queries: At least one.
        tiers: Names of ``kb.service.tiers.TIERS``.
        stage: Shows the progress.

    Returns:
        One result a tier, in the order asked for.

    Raises:
        ConfigError: A tier is not known.
        RetrievalError: A graded id is not in the knowledge base, or a scope is not known there.
        EmbedderUnavailableError: A tier needs an embedder that is not there.
    """
    unknown = [name for name in tiers if name not in TIERS]
    if unknown:
        raise ConfigError(f"no tier is called {unknown[0]!r}", hint=f"one of {', '.join(TIERS)}")
    made_up = isinstance(root, _Grown)
    file = root.path / ".kb" / catalogue.FILE if made_up else ensure_index(root)
    with closing(catalogue.open_reader(file)) as connection:
        scopes = [_checked(connection, one) for one in queries]
        found = []
        for name in tiers:
            with stage(f"preparing {name}") as progress:
                opened = TIERS[name](root, connection, progress)
            with opened as search, stage(f"measuring {name}") as progress:
                found.append(_measure(name, search, queries, scopes, progress))
    return tuple(found)


def _checked(connection: sqlite3.Connection, one: Graded) -> Scope:
    for entry in one.relevant:
        sql = f"SELECT 1 FROM {catalogue.ENTRY} WHERE id = ?"  # noqa: S608
        if connection.execute(sql, (entry,)).fetchone() is None:
            raise RetrievalError(f"line {one.line}: relevant: no entry has the id {entry!r}", hint="kb list")
    try:
        return scope_of(connection, one.filters)
    except (RetrievalError, DeviceUnavailableError) as error:
        raise RetrievalError(f"line {one.line}: scope: {error.message}", hint=error.hint) from error


def _measure(
    name: str,
    search: Callable[[str, Scope, int], list[str]],
    queries: Sequence[Graded],
    scopes: Sequence[Scope],
    progress: Callable[[int, int], None],
) -> Measured:
    qualities = []
    latencies = []
    # What is loaded at the first query is no property of a query.
    search(queries[0].query, scopes[0], DEPTH)
    for place, (one, scope) in enumerate(zip(queries, scopes, strict=True), start=1):
        began = time.perf_counter()
        ranked = search(one.query, scope, DEPTH)
        latencies.append((time.perf_counter() - began) * 1000.0)
        qualities.append(metrics.quality(ranked, one.relevant))
        progress(place, len(queries))
    return Measured(name, tuple(qualities), tuple(latencies))
