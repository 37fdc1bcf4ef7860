"""A knowledge base that stays open: the catalogue's readers are kept, and so is the embedder once it is loaded.

Every question is answered from files as they are when it is asked. Whether they changed is decided by ``stat`` alone,
and questions that come in together share one look at them.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kb import catalogue
from kb.config import Root
from kb.errors import IndexStaleError
from kb.models.hit import Answer
from kb.retrieval import retriever
from kb.service.indexing import ensure_index
from kb.service.meaning import Meaning, Say
from kb.service.searching import Filters, scope_of
from kb.service.watching import Tree
from kb.store.index import UNSETTLED, is_busy
from kb.values import sha256

T = TypeVar("T")

MOST_READERS = 8
"""Connections that are kept between questions."""

_SLOW_LOOK_S = 0.05
_PATIENCE = 20.0
_LONGEST_S = 5.0
_SETTINGS_S = 1.0
"""How old what is known of settings, packages and the judge's specs may be."""


@dataclass(frozen=True)
class _Seen:
    """The files as they were at one look."""

    state: str
    """Digest of everything that the catalogue is made from; empty if it has to be looked at again in any case."""
    file: Path
    inode: tuple[int, int]
    began: float
    took: float

    def covers(self, asked: float) -> bool:
        """Tell whether this look will do for a question that came in at ``asked``.

        It will if it began later. Where looking takes long, because there are very many entries, one look serves for
        twenty times what it took, five seconds at most.
        """
        if not self.state:
            return False
        if self.began >= asked:
            return True
        return self.took > _SLOW_LOOK_S and asked - self.began < min(_PATIENCE * self.took, _LONGEST_S)


class Resident:
    """One knowledge base in a process that stays; safe to use from several threads."""

    def __init__(self, root: Root, *, semantic: bool = False, say: Say | None = None) -> None:
        """Name the parts; nothing is read before the first question.

        Args:
            root: The knowledge base.
            semantic: Search by meaning too, where an embedder is installed, as soon as it is loaded.
            say: Told in words what is embedded, where anything has to be.
        """
        self.root = root
        self._looking = threading.Lock()
        self._seen: _Seen | None = None
        self._tree = Tree(root.entries)
        self._surroundings = (-_SETTINGS_S, "")
        self._pool: list[tuple[tuple[int, int], sqlite3.Connection]] = []
        self._pooled = threading.Lock()
        self._meaning = Meaning(root, say=say) if semantic else None

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Put a question to the up-to-date catalogue; one that turns out to be damaged is built anew, once.

        Args:
            question: Called with a reader, inside of one transaction: all it reads is of one state.

        Raises:
            ConfigError: No folder for derived files can be written.
            StoreError: The catalogue or the entries cannot be read or written.
        """
        return self._ask(question, lambda: self._look().file)

    def state(self) -> str:
        """Return 32 hexadecimal digits that differ as soon as an answer out of the catalogue may differ."""
        seen = self._look()
        day = time.strftime("%Y-%m-%d", time.gmtime())  # freshness of measured times depends on it
        note = None if self._meaning is None else (self._meaning.state, self._meaning.note)
        parts = (seen.state or str(time.monotonic_ns()), day, str(note))
        return sha256("\n".join(parts).encode()).hexdigest()[:32]

    def search(self, query: str, *, filters: Filters, limit: int) -> Answer:
        """Answer one query.

        Args:
            query: Any words.
            filters: Hard filters.
            limit: Most hits, 1 to 1,000.

        Raises:
            RetrievalError: An empty query, a limit out of range, or an unknown filter value.
            StoreError: The catalogue cannot be read or written.
        """
        meaning = self._meaning

        def question(connection: sqlite3.Connection) -> Answer:
            scope = scope_of(connection, filters)
            if meaning is None:
                return retriever.search(connection, query, scope=scope, limit=limit)
            found = meaning.search(connection, query, scope=scope, limit=limit)
            if found is not None:
                return found
            note = meaning.note
            answer = retriever.search(connection, query, scope=scope, limit=limit)
            return answer if note is None else answer.with_(notes=(*answer.notes, note))

        return self.ask(question)

    @property
    def meaning(self) -> str:
        """Whether searches use embeddings: ``off``, ``loading``, ``on`` or ``unavailable``."""
        return "off" if self._meaning is None else self._meaning.state

    @property
    def embedding(self) -> tuple[int, int] | None:
        """How many texts are embedded for searches by meaning, and of how many; None where none are being embedded."""
        return None if self._meaning is None else self._meaning.steps

    def wait(self, seconds: float) -> bool:
        """Begin to load the embedder and wait for it; tell whether searches use it now."""
        return self._meaning is not None and self._meaning.wait(seconds)

    def close(self) -> None:
        """Let go of files and connections."""
        with self._pooled:
            pool, self._pool = self._pool, []
        for _, connection in pool:
            connection.close()
        with self._looking:
            self._tree.close()
        if self._meaning is not None:
            self._meaning.close()

    def _ask(self, question: Callable[[sqlite3.Connection], T], file: Callable[[], Path]) -> T:
        try:
            with self._reader(file()) as connection:
                return question(connection)
        except (IndexStaleError, sqlite3.DatabaseError, LookupError) as error:
            if is_busy(error) or is_busy(error.__cause__):
                raise
        with self._looking:
            self._seen = None
            rebuilt = ensure_index(self.root, rebuild=True)
        with self._reader(rebuilt) as connection:
            return question(connection)

    def _look(self) -> _Seen:
        asked = time.monotonic()
        with self._looking:
            seen = self._seen
            if seen is not None and seen.covers(asked):
                return seen
            began, work = time.monotonic(), time.thread_time()
            state = self._state_now()
            took = time.thread_time() - work  # the processor's time: on a busy machine every look takes long
            if seen is None or seen.state != state or _inode(seen.file) != seen.inode:
                file = ensure_index(self.root)
                seen = _Seen("" if _is_unsettled(file) else state, file, _inode(file) or (0, 0), began, 0.0)
            self._seen = replace(seen, began=began, took=took)
            return self._seen

    def _state_now(self) -> str:
        now = time.monotonic()
        if now - self._surroundings[0] >= _SETTINGS_S:
            self._surroundings = (now, f"{catalogue.judge_state()}\n{catalogue.packages_state()}")
        return sha256(f"{self._tree.state()}\n{self._surroundings[1]}".encode()).hexdigest()

    @contextmanager
    def _reader(self, file: Path) -> Iterator[sqlite3.Connection]:
        inode = _inode(file) or (0, 0)
        connection = self._pooled_reader(inode) or catalogue.open_reader(file, any_thread=True)
        try:
            connection.execute("BEGIN")
            yield connection
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        with self._pooled:
            if len(self._pool) < MOST_READERS:
                self._pool.append((inode, connection))
                return
        connection.close()

    def _pooled_reader(self, inode: tuple[int, int]) -> sqlite3.Connection | None:
        with self._pooled:
            while self._pool:
                kept, connection = self._pool.pop()
                if kept == inode:
                    return connection
                connection.close()
        return None


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _is_unsettled(file: Path) -> bool:
    with closing(catalogue.open_reader(file)) as connection:
        return catalogue.read_meta(connection, "tree") == UNSETTLED
