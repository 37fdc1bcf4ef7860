"""Understanding a query: its words and what the phrases in it stand for. Standard library only."""

import sqlite3
from collections.abc import Mapping, Sequence

from kb.catalogue import LEXICON
from kb.retrieval import words
from kb.values import Frozen

_SYNONYM = 0.9
"""From this weight on, a row of the lexicon is another way to say the same."""
_FACET = 0.4
"""From this weight on, it is a facet of the query; below, only related."""
_VARIABLES = 500
"""Terms a statement; old builds of SQLite allow 999."""

_FUNCTION_WORDS = frozenset(
    """
    a about after all also am an and any are as at be been but by can could did do does doing for from get give had has
    have how i if in into is it its me my need no not of on or our please should show so some than that the their them
    then there these they this those to too up use used using very via vs versus want was we were what when where which
    while who why will with without would you your
    """.split()  # noqa: SIM905 - as a list it would fill the screen
)


class Concept(Frozen):
    """One phrase of the query that the lexicon knows."""

    phrase: str
    """As it stands in the query."""
    meanings: tuple[tuple[str, str, float], ...]
    """Facet, canonical word and weight, falling."""


class Understanding(Frozen):
    """All that was read from a query."""

    terms: tuple[str, ...]
    """Words and compounds to look for as they are; function words left out."""
    concepts: tuple[Concept, ...]

    @property
    def facets(self) -> dict[str, tuple[str, ...]]:
        """Facet to the canonical words that were said or are implied, in the order of the query."""
        found: dict[str, dict[str, None]] = {}
        for concept in self.concepts:
            for facet, canonical, weight in concept.meanings:
                if weight >= _FACET:
                    found.setdefault(facet, {})[canonical] = None
        return {facet: tuple(canonicals) for facet, canonicals in found.items()}

    @property
    def expansions(self) -> tuple[str, ...]:
        """Everything that is searched for without having been said: ``fp4 → nvfp4``."""
        said = {words.normal(concept.phrase) for concept in self.concepts}
        shown: dict[str, None] = {}
        for concept in self.concepts:
            for _, canonical, weight in concept.meanings:
                if words.normal(canonical) in said:
                    continue
                note = "" if weight >= _SYNONYM else " (implied)" if weight > 0.5 else " (also)"
                shown[f"{concept.phrase} → {canonical}{note}"] = None
        return tuple(shown)

    def canonicals(self, *, synonyms: bool) -> tuple[str, ...]:
        """Return canonical words: those that were said in other words, or those that are only near."""
        said: dict[str, None] = {}
        near: dict[str, None] = {}
        for concept in self.concepts:
            for _, canonical, weight in concept.meanings:
                (said if weight >= _SYNONYM else near)[canonical] = None
        return tuple(said) if synonyms else tuple(canonical for canonical in near if canonical not in said)

    def agreement(self, tokens: frozenset[str]) -> float:
        """Return how much of what the query means a document carries, 0 to 1; 0 if nothing was understood.

        Args:
            tokens: The facet tokens of the document.
        """
        if not self.concepts:
            return 0.0
        total = 0.0
        for concept in self.concepts:
            missed = 1.0
            for _, canonical, weight in concept.meanings:
                if words.token(canonical) in tokens:
                    missed *= 1.0 - weight
            total += 1.0 - missed
        return total / len(self.concepts)


def understand(connection: sqlite3.Connection, text: str) -> Understanding:
    """Read a query.

    Args:
        connection: The catalogue, for its copy of the lexicon.
        text: Anything a person or program typed or pasted; only the first words of a long text are read.

    Returns:
        Terms and concepts; both empty if the text has no word.
    """
    cleaned = words.clean(text)
    sequence = words.words(cleaned)[: words.MAX_WORDS]
    known = lookup(connection, [phrase for _, _, phrase in words.phrases(sequence)])
    concepts = tuple(
        Concept(" ".join(sequence[start : start + length]), meanings)
        for start, length, _, meanings in words.longest(sequence, known)
    )
    return Understanding(_terms(cleaned), _distinct(concepts))


def lookup(connection: sqlite3.Connection, terms: Sequence[str]) -> Mapping[str, tuple[tuple[str, str, float], ...]]:
    """Return what the lexicon has for each of some terms: facet, canonical word and weight, the heaviest first."""
    distinct = list(dict.fromkeys(terms))
    found: dict[str, list[tuple[str, str, float]]] = {}
    for start in range(0, len(distinct), _VARIABLES):
        part = distinct[start : start + _VARIABLES]
        marks = ",".join("?" * len(part))
        sql = f"SELECT term, facet, canonical, weight FROM {LEXICON} WHERE term IN ({marks})"  # noqa: S608
        for term, facet, canonical, weight in connection.execute(sql, part):
            found.setdefault(term, []).append((facet, canonical, weight))
    return {term: tuple(sorted(rows, key=lambda row: (-row[2], row[1]))) for term, rows in found.items()}


def _distinct(concepts: tuple[Concept, ...]) -> tuple[Concept, ...]:
    """Keep the first of several ways to say the same, so that a repeated word counts once."""
    return tuple({concept.meanings: concept for concept in reversed(concepts)}.values())[::-1]


def _terms(cleaned: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for compound in words.compounds(cleaned)[: words.MAX_WORDS]:
        found[compound] = None
        parts = words.words(compound)
        if len(parts) > 1:
            found.update((part, None) for part in parts if len(part) > 2)
    useful = tuple(term for term in found if term not in _FUNCTION_WORDS and (len(term) > 1 or not term.isascii()))
    return useful or tuple(found)
