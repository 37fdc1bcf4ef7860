"""Full-text search: from an understanding to scored rows of the catalogue. Standard library only."""

import sqlite3
from collections.abc import Sequence

from kb.catalogue import ENTRY, TEXT, WEIGHTS
from kb.retrieval import words
from kb.retrieval.query import Understanding

NEAR_WEIGHT = 0.6
"""What a match of something implied or related counts, against one of what was said."""

DEPTH = 2_000
"""How far each of two lists is read before they are added: what one of them lacks would count nothing there."""

LARGE = 20_000
"""From this many entries on, frequent words alone do not select candidates: ranking all they match would be slow."""

FREQUENT = 0.01
"""A word in more than this part of a large corpus is frequent."""


def quoted(term: str) -> str:
    """Return a term as an FTS5 string, so that nothing in it is syntax; several words become a phrase."""
    return '"' + term.replace('"', '""').replace("\0", " ") + '"'


def said(understanding: Understanding) -> list[str]:
    """Return the FTS5 phrases for what was said: the words as they are, and their canonical words."""
    found: dict[str, None] = {}
    for term in understanding.terms:
        found[quoted(term)] = None
        if "_" in term:
            # The underscore belongs to words in the index, so grouped_gemm would miss "grouped gemm".
            found[quoted(term.replace("_", " "))] = None
    for canonical in understanding.canonicals(synonyms=True):
        found.update(_canonical(canonical))
    return list(found)


def near(understanding: Understanding) -> list[str]:
    """Return the FTS5 phrases for what is implied or related."""
    found: dict[str, None] = {}
    for canonical in understanding.canonicals(synonyms=False):
        found.update(_canonical(canonical))
    return list(found)


def _canonical(canonical: str) -> dict[str, None]:
    one = words.token(canonical)
    several = quoted(" ".join(words.words(words.clean(canonical))))
    return {quoted(one): None, several: None} if "_" in one else {several: None}


def search(
    connection: sqlite3.Connection,
    understanding: Understanding,
    *,
    condition: str,
    parameters: Sequence[object],
    limit: int,
) -> dict[int, float]:
    """Score the entries that match a query.

    Args:
        connection: The catalogue.
        understanding: What was read from the query.
        condition: The hard scope, SQL over the entry table named ``e``.
        parameters: Its values.
        limit: How many candidates to return at most.

    Returns:
        rowid to BM25 score, above 0 and higher for better.
    """
    phrases = said(understanding)
    if not phrases:
        return {}
    match = _match(connection, phrases, limit)
    further = near(understanding)
    depth = max(DEPTH, limit) if further else limit
    scores = _scores(connection, match, condition, parameters, depth)
    if further:
        for rowid, score in _scores(connection, " OR ".join(further), condition, parameters, depth).items():
            scores[rowid] = scores.get(rowid, 0.0) + NEAR_WEIGHT * score
    # Sorting is stable, so equal scores stay in the order of their ids.
    best = sorted(scores, key=lambda rowid: -scores[rowid])[:limit]
    return {rowid: scores[rowid] for rowid in best}


def _scores(
    connection: sqlite3.Connection, match: str, condition: str, parameters: Sequence[object], limit: int
) -> dict[int, float]:
    weights = ", ".join(map(str, WEIGHTS))
    sql = (
        f"SELECT e.rowid, -bm25({TEXT}, {weights}) AS score FROM {TEXT} JOIN {ENTRY} AS e ON e.rowid = {TEXT}.rowid "  # noqa: S608
        f"WHERE {TEXT} MATCH ? AND {condition} ORDER BY score DESC, e.id LIMIT ?"
    )
    return {rowid: score for rowid, score in connection.execute(sql, (match, *parameters, limit)) if score > 0}


def _match(connection: sqlite3.Connection, phrases: Sequence[str], limit: int) -> str:
    """Join phrases by OR; in a large corpus leave frequent ones out, or join them by AND if there are no others."""
    total = connection.execute(f"SELECT max(rowid) FROM {ENTRY}").fetchone()[0] or 0  # noqa: S608
    if total < LARGE:
        return " OR ".join(phrases)
    most = int(total * FREQUENT)
    rare = [phrase for phrase in phrases if _count(connection, phrase, most + 1) <= most]
    if rare:
        return " OR ".join(rare)
    for length in range(len(phrases), 0, -1):
        match = " AND ".join(phrases[:length])
        if _count(connection, match, limit) >= limit:
            return match
    return " OR ".join(phrases)


def _count(connection: sqlite3.Connection, match: str, most: int) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {TEXT} WHERE {TEXT} MATCH ? LIMIT ?)"  # noqa: S608
    return int(connection.execute(sql, (match, most)).fetchone()[0])
