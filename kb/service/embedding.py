"""The semantic tier as a use case: vectors kept up to date with the catalogue, one-shot and resident search."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kb import catalogue
from kb.config import Root, derived_folder, read_settings
from kb.errors import ConfigError, IndexStaleError
from kb.models.hit import Answer
from kb.retrieval import fuse, models, vectors
from kb.retrieval.embed import DenseIndex, Embedder, digest_of, text_of
from kb.retrieval.filters import Scope
from kb.retrieval.hybrid import Dense, search_hybrid
from kb.store.locks import locked

if TYPE_CHECKING:
    from kb.retrieval.chroma import ChromaFolder, ChromaServer
    from kb.retrieval.embed import Matrix

Progress = Callable[[int, int], None]

_CHUNK = 64
"""Texts embedded between two reports of progress."""
_PATIENCE_S = 0.5
"""How long a question waits for another process that embeds."""
_CHECKPOINT_S = 60.0
"""A long run is written down so often, so that an interruption does not lose it."""


def embedder_setting() -> str:
    """Return the setting ``embedder``.

    Raises:
        ConfigError: It is no text.
    """
    value = read_settings().get("embedder", models.DEFAULT)
    if not isinstance(value, str):
        raise ConfigError(f"the setting embedder is {value!r}: expected text", hint="kb config unset embedder")
    return value


def dense_weight() -> float:
    """Return the share of meaning in a semantic score; unset or 0 is the measured default.

    Raises:
        ConfigError: It is no number from 0 to 1.
    """
    value = read_settings().get("dense_weight", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        hint = "kb config unset dense_weight"
        raise ConfigError(f"the setting dense_weight is {value!r}: expected a number from 0 to 1", hint=hint)
    return float(value) or fuse.DEFAULT_WEIGHT


def ensure_vectors(
    root: Root,
    *,
    connection: sqlite3.Connection | None = None,
    embedder: Embedder | None = None,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> vectors.Vectors:
    """Return the vectors of all entries, after embedding what is new or changed.

    Args:
        root: The knowledge base.
        connection: A reader of the catalogue whose entries are meant; None for the catalogue brought up to date.
        embedder: What embeds; that of the settings if None.
        rebuild: Embed everything anew.
        progress: Called with the number of texts embedded and their total.

    Raises:
        EmbedderUnavailableError: The embedder cannot be loaded.
        StoreError: Catalogue or vectors cannot be read or written.
    """
    from kb.service.indexing import ensure_index

    chosen = embedder or models.open_embedder(embedder_setting())
    if connection is not None:
        return _current(root, connection, chosen, rebuild=rebuild, progress=progress)
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        return _current(root, connection, chosen, rebuild=rebuild, progress=progress)


def sync_chroma(root: Root, *, rebuild: bool = False, progress: Progress | None = None) -> None:
    """Make the Chroma index that of the current vectors, where Chroma is installed.

    Args:
        root: The knowledge base.
        rebuild: Throw it away and write it anew.
        progress: Called with the number of vectors written and their total.

    Raises:
        IndexStaleError: There are no vectors yet.
        StoreError: It cannot be written.
    """
    index = _chroma(derived_folder(root), _Source(derived_folder(root)))
    if index is not None:
        with closing(index):
            index.sync(rebuild=rebuild, progress=progress)


def search_semantic(
    root: Root,
    connection: sqlite3.Connection,
    query: str,
    *,
    scope: Scope,
    limit: int,
    progress: Progress | None = None,
) -> Answer:
    """Answer one query by words and meaning, then forget: vectors are read through the memory map, without Chroma.

    Args:
        root: The knowledge base.
        connection: Its up-to-date catalogue.
        query: Any words.
        scope: Hard filters.
        limit: Most hits.
        progress: Called with the number of texts embedded and their total, if any have to be.

    Raises:
        RetrievalError: An empty query, a limit out of range, or no embedder.
        StoreError: Catalogue or vectors cannot be read or written.
    """
    embedder = models.open_embedder(embedder_setting())
    index = _current(root, connection, embedder, rebuild=False, progress=progress)
    return search_hybrid(
        connection, query, scope=scope, limit=limit, dense=Dense(embedder, index), weight=dense_weight()
    )


class ResidentSearch:
    """Semantic search of a process that stays: a loaded model, and Chroma where it is installed."""

    def __init__(self, root: Root) -> None:
        """Name the parts; model and index are loaded at the first query.

        Args:
            root: The knowledge base.

        Raises:
            ConfigError: A setting has a value that it cannot have.
            EmbedderUnavailableError: The embedder is not installed.
        """
        self._root = root
        self._embedder = models.open_embedder(embedder_setting(), resident=True)
        self._weight = dense_weight()
        self._folder = derived_folder(root)
        self._source = _Source(self._folder)
        self._index = _chroma(self._folder, self._source)
        self._guard = threading.Lock()

    @property
    def index(self) -> "ChromaFolder | ChromaServer | None":
        """The Chroma index, or None if Chroma is not installed."""
        return self._index

    def search(self, connection: sqlite3.Connection, query: str, *, scope: Scope, limit: int) -> Answer:
        """Answer one query by words and meaning.

        Args:
            connection: The up-to-date catalogue; entries that it has and the vectors lack are embedded first.
            query: Any words.
            scope: Hard filters.
            limit: Most hits.

        Raises:
            RetrievalError: An empty query, a limit out of range, or no embedder.
            LockBusyError: Another process embeds, and does not end in half a second.
            StoreError: Catalogue or vectors cannot be read or written.
        """
        with self._guard:
            found = _current(
                self._root, connection, self._embedder, rebuild=False, source=self._source, wait_s=_PATIENCE_S
            )
        index: DenseIndex = found if self._index is None else self._index
        dense = Dense(self._embedder, index)
        return search_hybrid(connection, query, scope=scope, limit=limit, dense=dense, weight=self._weight)

    def lacking(self, connection: sqlite3.Connection) -> int:
        """Return how many entries have no vector yet, or one of another text.

        Args:
            connection: The up-to-date catalogue.

        Raises:
            IndexStaleError: The catalogue cannot be read.
        """
        found = _usable(self._source, self._embedder)
        if found is not None and found.tree is not None and found.tree == catalogue.read_meta(connection, "tree"):
            return 0
        try:
            digests = {one: digest_of(text) for one, text in _texts(connection).items()}
        except sqlite3.Error as error:
            raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error
        return len(digests) - len(_kept(found, digests))

    def close(self) -> None:
        """Let go of files and connections."""
        if self._index is not None:
            self._index.close()


class _Source:
    """The current vectors of a folder, mapped anew only after they changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: tuple[object, vectors.Vectors] | None = None

    def __call__(self) -> vectors.Vectors:
        now = vectors.stamp(self.folder)
        if self._known is None or now is None or self._known[0] != now:
            self._known = (now, vectors.load(self.folder))
        return self._known[1]


def _chroma(folder: Path, source: Callable[[], vectors.Vectors]) -> "ChromaFolder | ChromaServer | None":
    if find_spec("chromadb") is None:
        return None
    from kb.retrieval.chroma import ChromaFolder, ChromaServer

    url = os.environ.get("KB_CHROMA_URL")
    if url:
        return ChromaServer(url, source)
    return ChromaFolder(folder, source, lock=partial(locked, folder / "chroma.lock"))


def _current(
    root: Root,
    connection: sqlite3.Connection,
    embedder: Embedder,
    *,
    rebuild: bool,
    progress: Progress | None = None,
    source: _Source | None = None,
    wait_s: float = 60.0,
) -> vectors.Vectors:
    """Return vectors that fit the catalogue; nothing is locked and no text is read if its state has not changed."""
    # Finding the folder tries whether it can be written, which is no work for every query.
    folder = derived_folder(root) if source is None else source.folder
    try:
        tree = catalogue.read_meta(connection, "tree")
        read = source or _Source(folder)
        if not rebuild:
            found = _usable(read, embedder)
            if found is not None and found.tree is not None and found.tree == tree:
                return found
        with locked(folder / "vectors.lock", wait_s=wait_s):
            # Whoever held the lock before may have done the work already.
            old = None if rebuild else _usable(read, embedder)
            return _update(folder, connection, embedder, old, tree=tree, progress=progress)
    except sqlite3.Error as error:
        raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error


def _usable(read: _Source, embedder: Embedder) -> vectors.Vectors | None:
    try:
        found = read()
    except IndexStaleError:
        return None
    return found if found.space.key == embedder.space.key else None


def _update(
    folder: Path,
    connection: sqlite3.Connection,
    embedder: Embedder,
    old: vectors.Vectors | None,
    *,
    tree: str | None,
    progress: Progress | None,
) -> vectors.Vectors:
    texts = _texts(connection)
    digests = {one: digest_of(text) for one, text in texts.items()}
    rows = _kept(old, digests)
    lacking = [one for one in texts if one not in rows]
    settled = None if tree == "unsettled" else tree
    if old is not None and not lacking and len(rows) == len(old.ids) and old.tree == settled:
        return old
    written = time.monotonic()
    if progress is not None and lacking:
        progress(0, len(lacking))  # the first texts take seconds: whoever waits is told before them
    for start in range(0, len(lacking), _CHUNK):
        part = lacking[start : start + _CHUNK]
        made = embedder.embed([texts[one] for one in part])
        rows.update((one, (digests[one], made[place])) for place, one in enumerate(part))
        if progress is not None:
            progress(start + len(part), len(lacking))
        if time.monotonic() - written > _CHECKPOINT_S:
            vectors.save(folder, embedder.space, rows)
            written = time.monotonic()
    return vectors.save(folder, embedder.space, rows, tree=settled)


def _kept(old: vectors.Vectors | None, digests: Mapping[str, str]) -> dict[str, tuple[str, "Matrix"]]:
    """Return the rows that can be used again: entries that are still there, with the same text."""
    if old is None:
        return {}
    return {
        one: (digest, old.matrix[row])
        for row, (one, digest) in enumerate(zip(old.ids, old.digests, strict=True))
        if digests.get(one) == digest
    }


def _texts(connection: sqlite3.Connection) -> dict[str, str]:
    import json

    sql = f"SELECT id, title, summary, kind, operators, tags, readme FROM {catalogue.ENTRY} ORDER BY id"  # noqa: S608
    found = {}
    for one, title, summary, kind, operators, tags, readme in connection.execute(sql):
        found[one] = text_of(
            title=title,
            summary=summary,
            kind=kind,
            operators=json.loads(operators),
            tags=json.loads(tags),
            readme=readme,
        )
    return found
