"""Search, list and show, as every surface but the fast path calls them."""

import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

from kb import catalogue
from kb.config import Root
from kb.errors import EntryNotFoundError, HistoryError
from kb.models.hit import Answer
from kb.retrieval import browse, retriever
from kb.retrieval import filters as scopes
from kb.service import history
from kb.service.indexing import ask, row_of
from kb.store import files
from kb.store.content import Content
from kb.store.history import Snapshot
from kb.values import plain


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


def scope_of(connection: sqlite3.Connection, filters: Filters) -> scopes.Scope:
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

    def question(connection: sqlite3.Connection) -> Answer:
        scope = scope_of(connection, filters)
        if semantic:
            from kb.service.embedding import search_semantic

            return search_semantic(root, connection, query, scope=scope, limit=limit)
        return retriever.search(connection, query, scope=scope, limit=limit)

    return ask(root, question)


def list_root(root: Root, filters: Filters, *, figures: bool = False) -> list[dict[str, Any]]:
    """Return one plain row an entry in scope; with ``figures`` also the figure to show for it."""
    return ask(root, lambda connection: browse.listing(connection, scope_of(connection, filters), figures=figures))


def show_root(root: Root, reference: str) -> dict[str, Any]:
    """Return one entry, now or at a version.

    Raises:
        EntryNotFoundError: No such entry or version.
        HistoryError: The version is older, and git cannot give it.
    """
    name, at, version = reference.rpartition("@")
    try:
        found = ask(root, lambda connection: browse.get(connection, name if at else version))
    except EntryNotFoundError:
        # What is gone from the files is still in git.
        if not at:
            raise
        return _older(history.show(root, reference))
    if not at or version == str(found["version"]):
        return found
    return _older(history.show(root, f"{found['id']}@{version}"))


def _older(old: Snapshot) -> dict[str, Any]:
    """Return a version from git in the form that the catalogue gives the present one, with its commit and contents."""
    stored, faults = files.inspect(Content(old.files, (), ()), old.id)
    if stored is None:
        message = f"{old.id}@{old.version}: today's format cannot read that version: {faults[0]}"
        raise HistoryError(message, hint=f"kb diff {old.id}@{old.version} shows its files")
    row = row_of(stored)
    # Its records lie with the present version, and are about the code that stands there.
    shown = browse.described({name: plain(getattr(row, name)) for name in catalogue.ENTRY_COLUMNS})
    contents = {name: body.decode("utf-8", "replace") for name, body in old.files.items()}
    return {**shown, "commit": old.commit, "contents": contents}
