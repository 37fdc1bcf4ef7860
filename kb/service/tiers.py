"""The ways to search that can be measured side by side, each as ids in order."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager

from kb.catalogue import ENTRY, TEXT, WEIGHTS
from kb.config import Root
from kb.errors import EmbedderUnavailableError
from kb.retrieval import fuse, lexical, retriever
from kb.retrieval.embed import DenseIndex
from kb.retrieval.filters import Scope

DEPTH = 10
"""How many places of a ranking are looked at."""

_FUSED = 150
"""How many places of each list are fused by rank."""

Search = Callable[[str, Scope, int], list[str]]
"""Query, scope and limit to ids, best first."""
Progress = Callable[[int, int], None]
Tier = Callable[[Root, sqlite3.Connection, Progress], AbstractContextManager[Search]]
"""Opens a way to search a knowledge base through its up-to-date catalogue."""


@contextmanager
def _bare(_root: Root, connection: sqlite3.Connection) -> Iterator[Search]:
    def search(query: str, scope: Scope, limit: int) -> list[str]:
        answer = retriever.search(connection, query, scope=scope, limit=limit)
        return [hit.id for hit in answer.hits]

    yield search


@contextmanager
def _fts(_root: Root, connection: sqlite3.Connection) -> Iterator[Search]:
    """Full-text search over the same fields with the same weights: no lexicon on the query, nothing re-ranked."""
    weights = ", ".join(map(str, WEIGHTS))

    def search(query: str, scope: Scope, limit: int) -> list[str]:
        match = " OR ".join(lexical.quoted(word) for word in query.split() if any(map(str.isalnum, word)))
        if not match:
            return []
        condition, parameters = scope.condition()
        sql = (
            f"SELECT e.id FROM {TEXT} JOIN {ENTRY} AS e ON e.rowid = {TEXT}.rowid "  # noqa: S608
            f"WHERE {TEXT} MATCH ? AND {condition} ORDER BY bm25({TEXT}, {weights}), e.id LIMIT ?"
        )
        return [row[0] for row in connection.execute(sql, (match, *parameters, limit))]

    yield search


@contextmanager
def _semantic(root: Root, connection: sqlite3.Connection) -> Iterator[Search]:
    from kb.service.embedding import ResidentSearch

    with closing(ResidentSearch(root)) as resident:

        def search(query: str, scope: Scope, limit: int) -> list[str]:
            answer = resident.search(connection, query, scope=scope, limit=limit)
            return [hit.id for hit in answer.hits]

        yield search


@contextmanager
def _chroma(root: Root, connection: sqlite3.Connection) -> Iterator[Search]:
    """Meaning alone: the nearest vectors that Chroma finds."""
    with _dense(root, connection) as dense:
        yield lambda query, scope, limit: list(dense(query, scope, limit))


@contextmanager
def _rrf(root: Root, connection: sqlite3.Connection) -> Iterator[Search]:
    """The bare tier and meaning, joined by the sum of reciprocal ranks at equal weights."""
    with _dense(root, connection) as dense:

        def search(query: str, scope: Scope, limit: int) -> list[str]:
            answer = retriever.search(connection, query, scope=scope, limit=_FUSED)
            words = {hit.id: hit.score for hit in answer.hits}
            joined = fuse.reciprocal_ranks(words, dense(query, scope, _FUSED))
            return sorted(joined, key=lambda one: (-joined[one], one))[:limit]

        yield search


@contextmanager
def _dense(root: Root, connection: sqlite3.Connection) -> Iterator[Callable[[str, Scope, int], dict[str, float]]]:
    from kb.retrieval import models
    from kb.service.embedding import ResidentSearch, embedder_setting

    embedder = models.open_embedder(embedder_setting(), resident=True)
    with closing(ResidentSearch(root)) as resident:
        if resident.index is None:
            raise EmbedderUnavailableError("chromadb is not installed", hint='pip install "kernel-kb[semantic]"')
        index: DenseIndex = resident.index

        def search(query: str, scope: Scope, limit: int) -> dict[str, float]:
            selected = None
            if scope != scope.without_filters():
                condition, parameters = scope.condition()
                sql = f"SELECT e.id FROM {ENTRY} AS e WHERE {condition}"  # noqa: S608
                selected = [row[0] for row in connection.execute(sql, parameters)]
            return dict(index.search(embedder.embed_query(query), limit=limit, ids=selected))

        yield search


def _by_words(opened: Callable[[Root, sqlite3.Connection], AbstractContextManager[Search]]) -> Tier:
    def tier(root: Root, connection: sqlite3.Connection, progress: Progress) -> AbstractContextManager[Search]:
        progress(1, 1)
        return opened(root, connection)

    return tier


def _by_meaning(opened: Callable[[Root, sqlite3.Connection], AbstractContextManager[Search]]) -> Tier:
    """Embed what is lacking and bring Chroma up to date before anything is measured."""

    def tier(root: Root, connection: sqlite3.Connection, progress: Progress) -> AbstractContextManager[Search]:
        from kb.service.embedding import ensure_vectors, sync_chroma

        ensure_vectors(root, connection=connection, progress=progress)
        sync_chroma(root, progress=progress)
        return opened(root, connection)

    return tier


TIERS: Mapping[str, Tier] = {
    "bare": _by_words(_bare),
    "fts": _by_words(_fts),
    "semantic": _by_meaning(_semantic),
    "chroma": _by_meaning(_chroma),
    "rrf": _by_meaning(_rrf),
}
"""``bare``: search as it is; ``fts``: full-text search alone; ``semantic``: words and meaning; ``chroma``: meaning
alone; ``rrf``: ``bare`` and meaning by equal-weight rank fusion."""
