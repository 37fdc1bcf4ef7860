"""Understanding a query: its words and what the phrases in it stand for. Standard library only."""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kb.catalogue import LEXICON, TEXT, read_meta
from kb.retrieval import words
from kb.values import Frozen

_SYNONYM = 0.9
"""From this weight on, a row of the lexicon is another way to say the same."""
_FACET = 0.4
"""From this weight on, it is a facet of the query; below, only related."""
_IMPORTANCE: Mapping[str, float] = {
    "arch": 0.3, "device": 0.3, "generation": 0.3, "language": 0.3, "dtype": 0.5, "phase": 0.5, "bound": 0.4,
    "library": 0.5, "metric": 0.4, "outcome": 0.4, "kind": 0.4, "model": 0.6, "operator": 1.0,
}  # fmt: skip
"""How much a facet says of what is looked for, against what it is only looked for under."""
_OTHER = 0.8

_MENTIONED = 0.2
"""What a mention counts against a topic."""

_LONG = 5
"""Letters from which on an unknown word may be a misspelt one."""

_VARIABLES = 500
"""Terms a statement; old builds of SQLite allow 999."""

FUNCTION_WORDS = frozenset(
    """
    a about actually after all also am an and any anybody anyone anything are as at be been besides but by can could
    did do does doing ever exactly example examples for from get give had happen happens has have how i if in into
    is it its just let lets look looking many me much my need no nobody not of on only or our please properly really
    seem seems should show so some someone something still than that the their them then there these they thing
    things this those to too try trying up us use used using versus very via vs want wants was way ways we were what
    when where which while who why will with without would yet you your
    """.split()  # noqa: SIM905 - as a list it would fill the screen
)
"""Words that say nothing of what is looked for."""


@lru_cache(maxsize=1024)
def _importance(meanings: tuple[tuple[str, str, float], ...]) -> float:
    said = [_IMPORTANCE.get(facet, _OTHER) for facet, _, weight in meanings if weight >= _SYNONYM]
    return max(said, default=0.3)


Weighed = tuple[float, tuple[tuple[str, float], ...]]
"""Importance of a concept, and the token and weight of each of its meanings."""


class Concept(Frozen):
    """One phrase of the query that the lexicon knows."""

    phrase: str
    """As it stands in the query."""
    meanings: tuple[tuple[str, str, float], ...]
    """Facet, canonical word and weight, falling."""

    @property
    def importance(self) -> float:
        """How much it says of what is looked for, 0 to 1."""
        return _importance(self.meanings)


class Understanding(Frozen):
    """All that was read from a query."""

    terms: tuple[str, ...]
    """Words and compounds to look for as they are; function words left out."""
    concepts: tuple[Concept, ...]
    spelling: tuple[tuple[str, str], ...] = ()
    """Words that nothing has, and what was read instead."""
    said: frozenset[str] = frozenset()
    """The single words of the terms, as :func:`kb.retrieval.words.stems` cuts them."""
    weighed: tuple[Weighed, ...] = ()
    """The concepts as :meth:`agreement` counts them: every search asks some hundred times. Empty: made when asked."""

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
        shown = {f"{word} → {instead} (spelling)": None for word, instead in self.spelling}
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

    def agreement(self, topics: frozenset[str], mentions: frozenset[str]) -> float:
        """Return how much of what the query means a document carries, 0 to 1; 0 if nothing was understood.

        Args:
            topics: The facet tokens of what the document is about.
            mentions: Those of what it only mentions.
        """
        if not self.concepts:
            return 0.0
        total = 0.0
        most = 0.0
        for concept in self.weighed or weighed(self.concepts):
            total += concept[0] * carried(concept, topics, mentions)
            most += concept[0]
        return total / most


def weighed(concepts: Sequence[Concept]) -> tuple[Weighed, ...]:
    """Return concepts as they are counted.

    Args:
        concepts: What was read from a query.
    """
    return tuple(
        (one.importance, tuple((words.token(canonical), weight) for _, canonical, weight in one.meanings))
        for one in concepts
    )


def carried(concept: Weighed, topics: frozenset[str], mentions: frozenset[str]) -> float:
    """Return how much of what a phrase means a document carries, 0 to 1.

    Args:
        concept: The phrase.
        topics: The facet tokens of what the document is about.
        mentions: Those of what it only mentions.
    """
    missed = 1.0
    for token, weight in concept[1]:
        if token in topics:
            missed *= 1.0 - weight
        elif token in mentions:
            missed *= 1.0 - _MENTIONED * weight
    return 1.0 - missed


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
    concepts = _concepts(connection, sequence)
    spelling = _spelling(connection, sequence, concepts)
    if spelling:
        instead = dict(spelling)
        sequence = [instead.get(word, word) for word in sequence]
        concepts = _concepts(connection, sequence)
    terms = dict.fromkeys((*_terms(cleaned), *(right for _, right in spelling)))
    meant = _distinct((*concepts, *_together(connection, concepts)))
    return Understanding(tuple(terms), meant, spelling, words.stems(" ".join(terms)), weighed(meant))


def _concepts(connection: sqlite3.Connection, sequence: Sequence[str]) -> tuple[Concept, ...]:
    known = lookup(connection, [phrase for _, _, phrase in words.phrases(sequence)])
    return tuple(
        Concept(" ".join(sequence[start : start + length]), meanings)
        for start, length, _, meanings in words.longest(sequence, known)
    )


def _together(connection: sqlite3.Connection, concepts: Sequence[Concept]) -> tuple[Concept, ...]:
    """Return what words mean that were said together, unless it was said as well."""
    said = [{canonical for _, canonical, weight in concept.meanings if weight >= _SYNONYM} for concept in concepts]
    every = {canonical for one in said for canonical in one}
    pairs = {
        words.pair(left, right)
        for place, one in enumerate(said)
        for other in said[place + 1 :]
        for left in one
        for right in other
        if left != right
    }
    found = lookup(connection, sorted(pairs))
    return tuple(
        Concept(pair, meanings)
        for pair, rows in sorted(found.items())
        if (meanings := tuple(row for row in rows if row[1] not in every))
    )


def _spelling(
    connection: sqlite3.Connection, sequence: Sequence[str], concepts: Sequence[Concept]
) -> tuple[tuple[str, str], ...]:
    """Return words that neither lexicon nor catalogue has, each with the one word of the lexicon that is near."""
    read = {word for concept in concepts for word in concept.phrase.split()}
    unknown = [
        word
        for word in dict.fromkeys(sequence)
        if len(word) >= _LONG and word.isalpha() and word not in read and not _is_used(connection, word)
    ]
    if not unknown:
        return ()
    found = []
    for word in unknown:
        known = _beginning(connection, word[0])
        near = [] if word in known else sorted(other for other in known if words.is_near(word, other))
        if len(near) == 1:
            found.append((word, near[0]))
    return tuple(found)


def _beginning(connection: sqlite3.Connection, letter: str) -> set[str]:
    """Return the words of the lexicon that begin with a letter; a process that stays reads them once."""
    lexicon = read_meta(connection, "lexicon")
    kept = [] if lexicon is None else _kept(lexicon, letter)
    if not kept:
        kept.append(_read_beginning(connection, letter))
    return kept[0]


@lru_cache(maxsize=64)
def _kept(lexicon: str, letter: str) -> list[set[str]]:
    """Return where the words of one lexicon are kept, by its digest; empty until somebody has read them."""
    del lexicon, letter
    return []


def _read_beginning(connection: sqlite3.Connection, letter: str) -> set[str]:
    sql = f"SELECT DISTINCT term FROM {LEXICON} WHERE term LIKE ? OR term LIKE ?"  # noqa: S608
    return {
        word
        for (term,) in connection.execute(sql, (f"{letter}%", f"% {letter}%"))
        for word in term.split()
        if word[0] == letter
    }


def _is_used(connection: sqlite3.Connection, word: str) -> bool:
    sql = f"SELECT 1 FROM {TEXT} WHERE {TEXT} MATCH ? LIMIT 1"  # noqa: S608
    return word in FUNCTION_WORDS or connection.execute(sql, (f'"{word}"',)).fetchone() is not None


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
    useful = tuple(term for term in found if term not in FUNCTION_WORDS and (len(term) > 1 or not term.isascii()))
    return useful or tuple(found)
