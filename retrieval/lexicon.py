"""The lexicon: how kernel engineers say things, read from ``lexicon.toml``.

The catalogue keeps a copy as rows, so that a search looks words up by SQL and never parses this file; only indexing
and the check whether the copy is current come here. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kb.retrieval import words
from kb.values import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kb.models.document import LexiconRow

SYNONYM = 1.0
"""Another way to say the same."""
IMPLIED = 0.6
"""What the word means among other things; documents carry it, queries follow it with this weight."""
WEAK = 0.5
"""An ambiguous way to say it."""
RELATED = 0.3
"""Not said at all, but worth a look."""
TOGETHER = 0.9
"""What two words mean that stand in one query."""

_FILE = Path(__file__).parent / "lexicon.toml"
_RELATIONS = ("implies", "related", "together")


def digest() -> str:
    """Return the sha256 of the lexicon's bytes; the catalogue keeps it to see whether its copy is current."""
    return sha256(_FILE.read_bytes()).hexdigest()


@cache
def rows() -> tuple[LexiconRow, ...]:
    """Return every way to say every canonical word, sorted; one row a term and canonical word, its highest weight."""
    import tomllib

    return compile_rows(tomllib.loads(_FILE.read_text(encoding="utf-8")))


@cache
def table() -> Mapping[str, tuple[LexiconRow, ...]]:
    """Return the rows by term, for indexing; a search asks the catalogue instead."""
    by_term: dict[str, list[LexiconRow]] = {}
    for row in rows():
        by_term.setdefault(row.term, []).append(row)
    return {term: tuple(found) for term, found in by_term.items()}


def compile_rows(data: Mapping[str, Mapping[str, Sequence[str]]]) -> tuple[LexiconRow, ...]:
    """Turn the parsed file into rows.

    Args:
        data: Facet to canonical word to terms, and the tables ``implies``, ``related`` and ``together``.

    Returns:
        Rows sorted by term, then falling weight, then canonical word.

    Raises:
        ValueError: A canonical word stands in two facets, a relation names an unknown word, or a term has no word.
    """
    from kb.models.document import LexiconRow

    facet_of = _facets(data)
    best: dict[tuple[str, str], float] = {}
    for term, canonical, weight in _said(data):
        normal = words.normal(term)
        if not normal:
            raise ValueError(f"lexicon: {term!r} of {canonical!r} has no word")
        steps = [(canonical, weight)]
        if weight == SYNONYM:
            steps += [(other, IMPLIED) for other in data.get("implies", {}).get(canonical, ())]
            steps += [(other, RELATED) for other in data.get("related", {}).get(canonical, ())]
        for other, strength in steps:
            key = (normal, other)
            best[key] = max(best.get(key, 0.0), strength)
    for canonical, pairs in data.get("together", {}).items():
        best.update(((words.pair(*both.split(words.PAIR)), canonical), TOGETHER) for both in pairs)
    made = [LexiconRow(term, facet_of[canonical], canonical, weight) for (term, canonical), weight in best.items()]
    return tuple(sorted(made, key=lambda row: (row.term, -row.weight, row.canonical)))


def _said(data: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[tuple[str, str, float]]:
    for facet, group in data.items():
        if facet in _RELATIONS:
            continue
        for canonical, terms in group.items():
            yield canonical, canonical, SYNONYM
            for term in terms:
                yield term.rstrip("~"), canonical, WEAK if term.endswith("~") else SYNONYM


def _facets(data: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, str]:
    facet_of: dict[str, str] = {}
    for facet, group in data.items():
        if facet in _RELATIONS:
            continue
        for canonical in group:
            if facet_of.setdefault(canonical, facet) != facet:
                raise ValueError(f"lexicon: {canonical!r} stands in {facet_of[canonical]} and in {facet}")
    for relation in _RELATIONS:
        for canonical, others in data.get(relation, {}).items():
            named = [part for other in others for part in other.split(words.PAIR)]
            unknown = [word for word in (canonical, *named) if word not in facet_of]
            if unknown:
                raise ValueError(f"lexicon: [{relation}] names {unknown[0]!r}, which no facet has")
    return facet_of
