"""Chroma as an index over the vectors: embedded under a file lock, or a server. Either can be thrown away and rebuilt.

Embedded Chroma loses vectors silently when two processes write, crashes the process on some damaged files and answers
wrongly on others (all of it measured). So one process at a time writes, what it wrote is known by hashes, whatever does
not match them is rebuilt from the vectors, and a question that Chroma cannot answer is answered from the vectors.
"""

import hashlib
import json
import logging
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from kb.errors import ConfigError, StoreError
from kb.retrieval import chroma_records
from kb.retrieval.embed import Space
from kb.retrieval.model_files import first_line, require_packages
from kb.retrieval.vectors import Vectors

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from kb.retrieval.embed import Matrix

FOLDER = "chroma"
STATE = "chroma.json"

_READ_WAIT_S = 0.5
_WRITE_WAIT_S = 60.0
_HINT = 'pip install "kernel-kb[semantic]"'

_opened = count(1)
logger = logging.getLogger(__name__)


class Lock(Protocol):
    """Keeps other processes out of the folder, or writers only."""

    def __call__(self, *, shared: bool, wait_s: float) -> AbstractContextManager[None]:
        """Hold the lock for a ``with`` block, or raise StoreError after ``wait_s`` seconds."""


@dataclass(frozen=True)
class Changes:
    """What was done to an index."""

    written: int
    removed: int
    rebuilt: bool


class _Index(ABC):
    """What both forms share: an index that follows the vectors and falls back on them."""

    def __init__(self, source: Callable[[], Vectors]) -> None:
        require_packages(("chromadb",), hint=_HINT)
        self._source = source
        self._mutex = threading.RLock()

    @property
    def space(self) -> Space:
        """Of which model the vectors are."""
        return self._source().space

    def search(self, vector: "Matrix", *, limit: int, ids: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """Return the nearest entries; see :class:`kb.retrieval.embed.DenseIndex`.

        The index is brought up to date first if the vectors changed. Where that would take long, or Chroma fails, the
        vectors themselves give the answer.
        """
        vectors = self._source()
        if vector.shape != (vectors.space.dim,):
            return vectors.search(vector, limit=limit, ids=ids)
        with self._mutex:
            followed = False
            for _ in range(3):  # ask, heal or follow, ask again
                try:
                    found = self._ask(vectors, vector, limit, ids)
                    if found is not None:
                        return found
                    if followed:
                        break
                    followed = True
                    self._follow(vectors)
                except StoreError as error:
                    logger.warning("chroma: %s; the vectors answer instead", error)
                    break
                except chroma_records.failures() as error:
                    logger.warning("chroma: %s", first_line(error))
                    self._distrust()
        return vectors.search(vector, limit=limit, ids=ids)

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    @abstractmethod
    def _ask(
        self, vectors: Vectors, vector: "Matrix", limit: int, ids: Sequence[str] | None
    ) -> list[tuple[str, float]] | None:
        """Return an answer, or None if the index is not that of these vectors."""

    @abstractmethod
    def _follow(self, vectors: Vectors) -> None:
        """Bring the index up to date if that is quick."""

    @abstractmethod
    def _distrust(self) -> None:
        """Make the next use look at everything again."""


class ChromaFolder(_Index):
    """Chroma inside this process, over a folder of its own."""

    def __init__(self, folder: Path, source: Callable[[], Vectors], *, lock: Lock) -> None:
        """Name the parts; nothing is opened yet.

        Args:
            folder: Where derived files lie; ``chroma/`` and ``chroma.json`` in it belong to this class.
            source: Returns the current vectors.
            lock: The lock of the folder; every process that uses it must use the same.
        """
        super().__init__(source)
        self._folder = folder
        self._lock = lock
        self._client: Any = None
        self._collection: Collection | None = None
        self._state: dict[str, Any] | None = None

    def sync(self, *, rebuild: bool = False, progress: Callable[[int, int], None] | None = None) -> Changes:
        """Make the index that of the current vectors.

        Args:
            rebuild: Throw it away and write it anew.
            progress: Called with the number of vectors written and their total.

        Raises:
            StoreError: It cannot be written, or another process has held the lock for too long.
        """
        with self._mutex, self._lock(shared=False, wait_s=_WRITE_WAIT_S):
            vectors = self._source()
            if not rebuild:
                try:
                    return self._update(vectors, progress)
                except OSError as error:
                    raise StoreError(f"cannot write {self._folder / FOLDER}: {error.strerror}") from error
                except chroma_records.failures() as error:
                    logger.warning("chroma: %s; the index is rebuilt", first_line(error))
            try:
                return self._rebuild(vectors, progress)
            except chroma_records.failures() as error:
                raise StoreError(f"Chroma cannot write {self._folder / FOLDER}: {first_line(error)}") from error

    def close(self) -> None:
        """Let go of the files."""
        with self._mutex:
            client, self._client, self._collection, self._state = self._client, None, None, None
            if client is not None:
                client.close()

    def _update(self, vectors: Vectors, progress: Callable[[int, int], None] | None) -> Changes:
        state = self._read_state()
        if state is None or state["space"] != vectors.space.key or not self._intact(state):
            return self._rebuild(vectors, progress)
        if state["vectors"] == vectors.name:
            return Changes(0, 0, rebuilt=False)
        self.close()
        # Without it, whoever comes after a crash from here on knows that the folder cannot be trusted.
        (self._folder / STATE).unlink()
        written, removed = chroma_records.fill(self._connect(vectors.space), vectors, prune=True, progress=progress)
        self._commit(vectors)
        return Changes(written, removed, rebuilt=False)

    def _rebuild(self, vectors: Vectors, progress: Callable[[int, int], None] | None) -> Changes:
        self.close()
        (self._folder / STATE).unlink(missing_ok=True)
        place = self._folder / FOLDER
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        written, _ = chroma_records.fill(self._connect(vectors.space), vectors, prune=False, progress=progress)
        self._commit(vectors)
        return Changes(written, 0, rebuilt=True)

    def _commit(self, vectors: Vectors) -> None:
        self.close()
        state = {"vectors": vectors.name, "space": vectors.space.key, "files": _hashes(self._folder / FOLDER)}
        part = self._folder / (STATE + ".part")
        part.write_text(json.dumps(state, sort_keys=True, indent=2) + "\n", encoding="utf-8")
        part.replace(self._folder / STATE)

    def _connect(self, space: Space) -> "Collection":
        import chromadb
        from chromadb.config import Settings

        place = str(self._folder / FOLDER) + "/." * next(_opened)
        # Chroma keeps one open store a path and process, and hands the old one out again after a close by one of
        # several users. A spelling of its own gives every opening its own store, which sees what others wrote.
        self._client = chromadb.PersistentClient(place, settings=Settings(anonymized_telemetry=False))
        self._collection = chroma_records.open_collection(self._client, space)
        return self._collection

    def _ask(
        self, vectors: Vectors, vector: "Matrix", limit: int, ids: Sequence[str] | None
    ) -> list[tuple[str, float]] | None:
        with self._lock(shared=True, wait_s=_READ_WAIT_S):
            state = self._read_state()
            if state is None or state["vectors"] != vectors.name or state["space"] != vectors.space.key:
                return None
            if self._collection is None or state != self._state:
                self.close()
                if not self._intact(state):
                    return None
                self._connect(vectors.space)
                self._state = state
            if self._collection is None:
                raise AssertionError("connected above")
            return chroma_records.nearest(self._collection, vectors, vector, limit, ids)

    def _follow(self, vectors: Vectors) -> None:
        if len(vectors.ids) <= chroma_records.BATCH or self._small_step(vectors):
            self.sync()

    def _small_step(self, vectors: Vectors) -> bool:
        state = self._read_state()
        return state is not None and state["space"] == vectors.space.key and self._intact(state)

    def _distrust(self) -> None:
        self.close()
        (self._folder / STATE).unlink(missing_ok=True)

    def _read_state(self) -> dict[str, Any] | None:
        try:
            state = json.loads((self._folder / STATE).read_bytes())
            return {"vectors": str(state["vectors"]), "space": str(state["space"]), "files": dict(state["files"])}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _intact(self, state: dict[str, Any]) -> bool:
        return bool(_hashes(self._folder / FOLDER) == state["files"])


class ChromaServer(_Index):
    """A Chroma server that a team shares; it may hold entries that this node does not know."""

    def __init__(self, url: str, source: Callable[[], Vectors]) -> None:
        """Name the parts; nothing is connected yet.

        Args:
            url: ``http://HOST:PORT`` or ``https://…``.
            source: Returns the current vectors.

        Raises:
            ConfigError: The address is none.
        """
        super().__init__(source)
        try:
            parts = urlsplit(url)
            self._port = parts.port or (443 if parts.scheme == "https" else 8000)
        except ValueError as error:
            raise ConfigError(f"KB_CHROMA_URL is {url!r}: {error}", hint="http://HOST:8000") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(f"KB_CHROMA_URL is {url!r}: expected http://HOST:PORT", hint="http://HOST:8000")
        self._url = url
        self._host = parts.hostname
        self._ssl = parts.scheme == "https"
        self._client: Any = None
        self._collection: Collection | None = None
        self._synced: str | None = None

    def sync(self, *, rebuild: bool = False, progress: Callable[[int, int], None] | None = None) -> Changes:
        """Write the vectors that the server lacks or has of an older text; others' entries stay.

        Args:
            rebuild: Throw the collection of this model away first, for everybody.
            progress: Called with the number of vectors written and their total.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        with self._mutex:
            vectors = self._source()
            try:
                if rebuild:
                    self._connect(vectors.space)
                    if self._client is not None:
                        self._client.delete_collection(chroma_records.name_of(vectors.space))
                    self.close()
                written, _ = chroma_records.fill(self._connect(vectors.space), vectors, prune=False, progress=progress)
            except chroma_records.failures() as error:
                self.close()
                message = f"the Chroma server at {self._url} does not answer as expected: {first_line(error)}"
                raise StoreError(message, hint="start it with: chroma run") from error
            self._synced = vectors.name
            return Changes(written, 0, rebuilt=rebuild)

    def close(self) -> None:
        """Let go of the connection."""
        with self._mutex:
            client, self._client, self._collection, self._synced = self._client, None, None, None
            if client is not None:
                client.close()
                # Chroma's own close leaves the connections of both its halves to the garbage collector.
                for half in (client, getattr(client, "_admin_client", None)):
                    session = getattr(getattr(half, "_server", None), "_session", None)
                    if session is not None:
                        session.close()

    def _connect(self, space: Space) -> "Collection":
        if self._collection is None or self._collection.name != chroma_records.name_of(space):
            import chromadb
            from chromadb.config import Settings

            settings = Settings(anonymized_telemetry=False)
            self._client = chromadb.HttpClient(self._host, self._port, ssl=self._ssl, settings=settings)
            self._collection = chroma_records.open_collection(self._client, space)
        return self._collection

    def _ask(
        self, vectors: Vectors, vector: "Matrix", limit: int, ids: Sequence[str] | None
    ) -> list[tuple[str, float]] | None:
        if self._synced != vectors.name:
            return None
        return chroma_records.nearest(self._connect(vectors.space), vectors, vector, limit, ids)

    def _follow(self, vectors: Vectors) -> None:
        self.sync()

    def _distrust(self) -> None:
        self.close()


def _hashes(place: Path) -> dict[str, str]:
    """Return the sha256 of every index file; of the database only that it is there, because opening it writes to it."""
    found = {}
    for path in sorted(place.rglob("*")):
        inner = path.relative_to(place).as_posix()
        if path.is_file() and inner.startswith("chroma.sqlite3"):
            if inner == "chroma.sqlite3":
                found[inner] = "present" if path.stat().st_size else "empty"
        elif path.is_file():
            with path.open("rb") as file:
                found[inner] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
