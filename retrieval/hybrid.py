"""The semantic tier: candidates by words and by meaning, ranked together by what the bare tier ranks by."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kb.catalogue import ENTRY
from kb.models.hit import Answer
from kb.retrieval import fuse, retriever
from kb.retrieval.embed import DenseIndex, Embedder, require_same
from kb.retrieval.filters import Scope

if TYPE_CHECKING:
    from kb.retrieval.embed import Matrix

CANDIDATES = 150
"""Entries that meaning hands on."""

FLOOR = 0.25
"""Cosine below which nothing is near: some entry is always the nearest, whatever was asked."""


@dataclass(frozen=True)
class Dense:
    """An embedder and an index of vectors that it made."""

    embedder: Embedder
    index: DenseIndex


def search_hybrid(
    connection: sqlite3.Connection, query: str, *, scope: Scope, limit: int, dense: Dense, weight: float
) -> Answer:
    """Answer a query by words and meaning.

    Args:
        connection: An up-to-date catalogue.
        query: Words of any kind; nothing in it is syntax.
        scope: The hard filters, from :func:`kb.retrieval.filters.make`.
        limit: Most hits to return, 1 to 1,000.
        dense: Embeds the query and finds the nearest entries.
        weight: Share of meaning in the score of the text, 0 to 1; at 0 it counts only where words find nothing.

    Returns:
        Hits, best first (by score, then id), or the reason why there are none.

    Raises:
        RetrievalError: The query is empty, the limit is out of range, or the index is another model's.
        EmbedderUnavailableError: The embedder cannot be loaded.
        IndexStaleError: The catalogue cannot be read.
    """
    blend = _Blend(connection, query[: retriever.MAX_CHARACTERS], dense, weight)
    return retriever.search(connection, query, scope=scope, limit=limit, blend=blend)


@dataclass
class _Blend(retriever.Blend):
    """Adds meaning to the scores of one query."""

    connection: sqlite3.Connection
    query: str
    dense: Dense
    weight: float
    vector: "Matrix | None" = None
    near: dict[int, float] = field(default_factory=dict)
    """rowid to cosine of what words did not find."""

    def scores(self, found: Mapping[int, float], scope: Scope) -> dict[int, float]:
        """Join the scores of words and of meaning in the same scope; without a weight, fill in for missing ones."""
        if self.weight == 0.0 and found:
            return dict(found)
        if self.vector is None:
            self.vector = self.dense.embedder.embed_query(self.query)
            require_same(self.dense.embedder.space, self.dense.index.space)
        nearest = self.dense.index.search(self.vector, limit=CANDIDATES, ids=self._selected(scope))
        meaning = self._rows({one: cosine for one, cosine in nearest if cosine >= FLOOR}, scope)
        self.near.update((rowid, cosine) for rowid, cosine in meaning.items() if rowid not in found)
        return fuse.convex(found, meaning, weight=self.weight) if found else fuse.normalised(meaning)

    def why(self, rowid: int) -> str | None:
        """Say that an entry was found by meaning, if words did not find it."""
        cosine = self.near.get(rowid)
        return None if cosine is None else f"near in meaning, cosine {cosine:.2f}"

    def _selected(self, scope: Scope) -> list[str] | None:
        """Return the ids in scope, or None if it leaves nearly everything."""
        if scope.kind is None and scope.outcome is None and not scope.operators and not scope.dtypes:
            return None
        condition, parameters = scope.condition()
        sql = f"SELECT e.id FROM {ENTRY} AS e WHERE {condition}"  # noqa: S608
        return [row[0] for row in self.connection.execute(sql, parameters)]

    def _rows(self, near: Mapping[str, float], scope: Scope) -> dict[int, float]:
        """Return what the catalogue has of the found entries in the scope, by rowid."""
        condition, parameters = scope.condition()
        marks = ",".join("?" * len(near))
        sql = f"SELECT e.rowid, e.id FROM {ENTRY} AS e WHERE e.id IN ({marks}) AND {condition}"  # noqa: S608
        return {rowid: near[one] for rowid, one in self.connection.execute(sql, (*near, *parameters))}
