"""A collection of vectors in Chroma: how it is made, filled and asked, embedded and on a server alike."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kb.retrieval.embed import Space
from kb.retrieval.vectors import Vectors

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from kb.retrieval.embed import Matrix

BATCH = 5_000
"""Vectors a call; Chroma takes 5,461 at most."""
SELECTIVE = 2_000
"""Up to so many ids are handed to Chroma; its filters are slow on more, so the answer is filtered instead."""


def failures() -> tuple[type[Exception], ...]:
    """Return what Chroma raises when it fails: its errors have no base of their own."""
    import httpx
    from chromadb.errors import ChromaError

    return ChromaError, httpx.HTTPError, OSError, ValueError, RuntimeError, TypeError, KeyError


def name_of(space: Space) -> str:
    """Return the name of the collection for the vectors of a model."""
    return f"kb-{space.key}"


def open_collection(client: "ClientAPI", space: Space) -> "Collection":
    """Open the collection for the vectors of a model, made if it is missing."""
    # Thresholds of 1: what a call wrote is on disk when it returns, so that readers never write the index files.
    configuration: Any = {"hnsw": {"space": "cosine", "sync_threshold": 1, "batch_size": 1}}
    return client.get_or_create_collection(name_of(space), configuration=configuration, embedding_function=None)


def _present(collection: "Collection") -> Iterator[tuple[str, str]]:
    start = 0
    while True:
        page = collection.get(limit=BATCH, offset=start, include=["metadatas"])
        for entry_id, metadata in zip(page["ids"], page["metadatas"] or [], strict=True):
            yield entry_id, str((metadata or {}).get("digest", ""))
        if len(page["ids"]) < BATCH:
            return
        start += BATCH


def fill(
    collection: "Collection", vectors: Vectors, *, prune: bool, progress: Callable[[int, int], None] | None
) -> tuple[int, int]:
    """Write what the collection lacks or has of an older text.

    Args:
        collection: Where to.
        vectors: What it shall hold.
        prune: Remove what is not among the vectors.
        progress: Called with the number of vectors written and their total.

    Returns:
        How many were written, and how many removed.
    """
    present = dict(_present(collection))
    rows = [row for row, one in enumerate(vectors.ids) if present.get(one) != vectors.digests[row]]
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        collection.upsert(
            ids=[vectors.ids[row] for row in part],
            embeddings=vectors.matrix[part],
            metadatas=[{"digest": vectors.digests[row]} for row in part],
        )
        if progress is not None:
            progress(start + len(part), len(rows))
    gone = sorted(one for one in present if one not in vectors.rows) if prune else []
    for start in range(0, len(gone), BATCH):
        collection.delete(ids=gone[start : start + BATCH])
    return len(rows), len(gone)


def nearest(
    collection: "Collection", vectors: Vectors, vector: "Matrix", limit: int, ids: Sequence[str] | None
) -> list[tuple[str, float]]:
    """Ask for the nearest entries.

    Args:
        collection: An index that has all the vectors; what it has beyond them is passed over.
        vectors: The current vectors.
        vector: float32 [dim], of length 1.
        limit: Most entries to return.
        ids: Look among these only; None for all.

    Returns:
        Id and cosine, best first; equal ones by id.
    """
    wanted = set(vectors.rows) if ids is None else vectors.rows.keys() & set(ids)
    if not wanted or limit <= 0:
        return []
    selective = ids is not None and len(wanted) <= SELECTIVE
    total = len(wanted) if selective else collection.count()
    asked = min(limit, total)
    while True:
        answer = collection.query(
            query_embeddings=vector[None, :],
            n_results=asked,
            ids=sorted(wanted) if selective else None,
            include=["distances"],
        )
        distances = answer["distances"] or [[]]
        found = [
            (one, 1.0 - float(far)) for one, far in zip(answer["ids"][0], distances[0], strict=True) if one in wanted
        ]
        if len(found) >= min(limit, len(wanted)) or asked >= total:
            return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:limit]
        asked = min(total, asked * 4)
