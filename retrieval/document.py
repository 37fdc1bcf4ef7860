"""From an entry to what full-text search sees of it. Runs when indexing. Standard library only."""

from collections.abc import Iterator, Mapping, Sequence

from kb.models.document import Document
from kb.retrieval import lexicon, words

_NOT_MEANING = frozenset(
    {"schema", "version", "license", "restrictions", "source", "lineage", "cost", "withdrawn", "limits", "outcome"}
)
"""Facts that say nothing of what an entry is about."""

_OWN = frozenset({"kind", "outcome"})
"""Facets that an entry has by what it is, not by the words in it: "slower" in a sentence makes no regression."""

_IDENTIFIERS = frozenset({"sha256", "commit", "url", "path", "entry_point", "packages"})


def build(entry_id: str, facts: Mapping[str, object], readme: str) -> Document:
    """Build the searchable form of an entry.

    Args:
        entry_id: Path below ``entries/``.
        facts: The plain form of ``entry.toml``.
        readme: Its prose.

    Returns:
        Title, tags, facets and text; the facets are canonical words of the lexicon: first what the entry is about, by
        its id, operators, tags, title and summary, then (after a mark) what the rest of the facts mentions.
    """
    kind, _, rest = entry_id.partition("/")
    outcome = str(facts.get("outcome", "works"))
    own = [kind] if outcome == "works" else [kind, outcome, "negative result"]
    title = str(facts.get("title", ""))
    tags = [kind, *_strings(facts.get("operator")), *_strings(facts.get("applies_to")), *_strings(facts.get("tags"))]
    about = [rest, *tags[1:], title, str(facts.get("summary", ""))]
    tags += [*_strings(facts.get("symbols")), *_strings(facts.get("phase")), str(facts.get("language", "")), rest]
    topics = _canonicals(own, of=_OWN) | _canonicals(about, of=None)
    mentions = _canonicals(list(_meaning(_about(facts))), of=None) - topics
    return Document(
        title=title,
        tags=" ".join(_spaced(tag) for tag in tags if tag and tag != "none"),
        facets=" ".join((*sorted(topics), words.MENTIONS, *sorted(mentions))),
        text="\n".join([*own, *(piece for piece in _meaning(facts) if piece != title), readme]),
    )


def _spaced(tag: str) -> str:
    """Keep a name as one word and add its parts: an underscore belongs to words in the index."""
    return f"{tag} {tag.replace('_', ' ')}" if "_" in tag else tag


def _about(facts: Mapping[str, object]) -> Mapping[str, object]:
    """Leave out what would make an entry mention nearly everything.

    The operator table of a target names every operator, so it would answer every question; and those who ask say what
    they have, not what helps.
    """
    facts = {key: value for key, value in facts.items() if key != "questions"}
    target = facts.get("target")
    if not isinstance(target, Mapping):
        return facts
    return {**facts, "target": {key: value for key, value in target.items() if key != "operators"}}


def _meaning(facts: Mapping[str, object]) -> Iterator[str]:
    for key, value in facts.items():
        if key not in _NOT_MEANING:
            yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    """Yield the texts in a value; numbers say nothing to a search, and neither do keys and identifiers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _IDENTIFIERS:
                yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


def _canonicals(pieces: Sequence[str], *, of: frozenset[str] | None) -> set[str]:
    """Return the tokens of what the pieces say: of some facets, or (None) of all that are not an entry's own."""
    table = lexicon.table()
    found = set()
    for piece in pieces:
        for _, _, _, rows in words.longest(words.words(words.clean(piece)), table):
            for row in rows:
                wanted = row.facet in of if of is not None else row.facet not in _OWN
                if wanted and row.weight >= lexicon.IMPLIED:
                    found.add(words.token(row.canonical))
    return found
