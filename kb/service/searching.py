"""Search, list and show, as every surface but the fast path calls them."""

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kb import catalogue
from kb.config import Root
from kb.models.hit import Answer
from kb.retrieval import filters as scopes
from kb.retrieval import retriever
from kb.service import history
from kb.service.indexing import ensure_index

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True)
class Filters:
    """The hard filters as a user writes them; None means no filter."""

    kind: str | None = None
    operator: str | None = None
    dtype: str | None = None
    arch: str | None = None
    device: str | None = None
    outcome: str | None = None
    withdrawn: bool = False


def scope_of(connection: "sqlite3.Connection", filters: Filters) -> scopes.Scope:
    """Read filters; unknown values fail with the nearest known ones."""
    return scopes.make(connection, **asdict(filters))


def search_root(root: Root, query: str, *, filters: Filters, limit: int = 10, semantic: bool = False) -> Answer:
    """Search a knowledge base, bringing its catalogue up to date first.

    Args:
        root: The knowledge base.
        query: Any words.
        filters: Hard filters.
        limit: Most hits.
        semantic: Use embeddings too.

    Raises:
        RetrievalError: An empty query, an unknown filter value, or no embedder.
    """
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        scope = scope_of(connection, filters)
        if semantic:
            from kb.service.embedding import search_semantic

            return search_semantic(root, connection, query, scope=scope, limit=limit)
        return retriever.search(connection, query, scope=scope, limit=limit)


def list_root(root: Root, filters: Filters) -> list[dict[str, Any]]:
    """Return one plain row an entry in scope."""
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        return retriever.listing(connection, scope_of(connection, filters))


def show_root(root: Root, reference: str) -> dict[str, Any]:
    """Return one entry, now or at a version.

    Raises:
        EntryNotFoundError: No such entry or version.
        HistoryError: The version is older, and git cannot give it.
    """
    name, at, version = reference.rpartition("@")
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        found = retriever.get(connection, name if at else version)
    if not at or version == str(found["version"]):
        return found
    old = history.show(root, f"{found['id']}@{version}")
    files = {file: body.decode("utf-8", "replace") for file, body in old.files.items()}
    shown = {"id": old.id, "version": old.version, "commit": old.commit, **old.facts, "readme": old.readme}
    return shown | {"files": list(files), "contents": files}
