"""The searchable form of an entry, and the row that a catalogue keeps; standard library only."""

from collections.abc import Mapping

from kb.values import Frozen


class Document(Frozen):
    """What full-text search sees of one entry, by field weight."""

    title: str
    tags: str
    """Operator, tags and symbols."""
    facets: str
    """Canonical facet words of the lexicon: dtypes, architectures, operators, models."""
    text: str
    """Summary and readme."""


class LexiconRow(Frozen):
    """One way to say something."""

    term: str
    """Lower-case words with single blanks between them, as ``kb.retrieval.words.normal`` writes them."""
    facet: str
    """``dtype``, ``arch``, ``operator``, ``symptom`` and so on."""
    canonical: str
    """The word that documents carry."""
    weight: float
    """1 for a synonym, less for what is implied, ambiguous or only related."""


class Row(Frozen):
    """One entry as the catalogue stores it."""

    id: str
    version: int
    kind: str
    topic: str
    """The middle part of the id: operator, collective or topic."""
    slug: str
    operator: str | None
    title: str
    summary: str
    outcome: str
    language: str
    license: str
    digest: str
    """sha256 of the entry, 64 hexadecimal digits."""
    withdrawn: str | None
    """``date: reason``, or None."""
    evidence: str
    """Best level anywhere."""
    dtypes: tuple[str, ...]
    tags: tuple[str, ...]
    operators: tuple[str, ...]
    """The operator and all of ``applies_to``."""
    facts: Mapping[str, object]
    """JSON form of the entry's facts: requires, limits, contracts, claims and the rest of ``entry.toml``."""
    readme: str
    document: Document
    files: tuple[str, ...] = ()
    """Names of the entry's files, relative to its folder."""
    cells: tuple[Mapping[str, object], ...] = ()
    """What its records prove, as :mod:`kb.cells` describes it."""
    ignored: tuple[str, ...] = ()
    """Records that count for nothing: path and why, one line each."""
