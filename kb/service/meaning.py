"""Search by meaning in a process that stays: loaded and kept up to date beside the questions, never before one.

Embedding a large store takes minutes. Whoever asks in the meantime is answered by words alone, and told so.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from kb import catalogue
from kb.config import Root
from kb.errors import EmbedderUnavailableError, KbError
from kb.models.hit import Answer
from kb.retrieval.filters import Scope
from kb.service.indexing import ensure_index
from kb.store.locks import LockBusyError

if TYPE_CHECKING:
    from kb.service.embedding import ResidentSearch

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Texts that a question waits for; where more were changed, they are embedded beside the questions."""

_SAY_S = 5.0
"""How often it is said how far embedding is."""
_LOADING = "found by words alone: embeddings are still being loaded"

Say = Callable[[str], None]


class _ClosedError(Exception):
    """Nobody needs the embeddings any more."""


class Meaning:
    """What answers by meaning once it is ready; safe to use from several threads."""

    def __init__(self, root: Root, *, say: Say | None = None) -> None:
        """Name the parts; nothing is loaded before the first question.

        Args:
            root: The knowledge base.
            say: Told in words what is embedded, and how far that is, where there is anything to embed.
        """
        self._root = root
        self._tell = say
        self._guard = threading.Lock()
        self._search: ResidentSearch | None = None
        self._ready = False
        self._refused = False
        self._worker: threading.Thread | None = None
        self._closed = threading.Event()
        self._steps: tuple[int, int] | None = None
        self._said = 0.0

    @property
    def state(self) -> str:
        """``loading`` (also where it is brought up to date), ``on`` or ``unavailable``."""
        if self._refused:
            return "unavailable"
        return "on" if self._ready else "loading"

    @property
    def steps(self) -> tuple[int, int] | None:
        """How many texts are embedded, and of how many; None where none are being embedded."""
        return None if self._ready else self._steps

    @property
    def note(self) -> str | None:
        """What an answer by words alone says; None where nothing better will come."""
        if self._refused:
            return None
        steps = self.steps
        return _LOADING if steps is None else f"{_LOADING} ({steps[0]:,} of {_texts(steps[1])})"

    def search(self, connection: sqlite3.Connection, query: str, *, scope: Scope, limit: int) -> Answer | None:
        """Answer one query, or return None where that would have to wait for the embedder or for many texts.

        Args:
            connection: The up-to-date catalogue.
            query: Any words.
            scope: Hard filters.
            limit: Most hits.

        Raises:
            RetrievalError: An empty query or a limit out of range.
            StoreError: Catalogue or vectors cannot be read or written.
        """
        search = self._search
        if not self._ready or search is None:
            self.begin()
            return None
        if search.lacking(connection) <= AT_ONCE:
            try:
                return search.search(connection, query, scope=scope, limit=limit)
            except LockBusyError:
                pass  # another process embeds; that may take as long
        self.begin(again=True)
        return None

    def begin(self, *, again: bool = False) -> None:
        """Load and embed in a thread of its own, if none does so.

        Args:
            again: The store has changed since it was ready.
        """
        with self._guard:
            if self._refused or self._closed.is_set() or (self._ready and not again):
                return
            if self._worker is not None and self._worker.is_alive():
                return
            self._ready, self._steps = False, None
            self._worker = threading.Thread(target=self._work, daemon=True, name="embedder")
            self._worker.start()

    def wait(self, seconds: float) -> bool:
        """Begin, and wait until it is ready; tell whether it is."""
        self.begin()
        worker = self._worker
        if worker is not None:
            worker.join(seconds)
        return self._ready

    def close(self) -> None:
        """Let go of files and connections; what is being embedded is given up at the next step."""
        self._closed.set()
        if self._search is not None and not (self._worker is not None and self._worker.is_alive()):
            self._search.close()

    def _work(self) -> None:
        began = time.monotonic()
        try:
            while not self._closed.is_set():
                try:
                    self._load()
                    break
                except LockBusyError:
                    self._say("another process embeds; waiting for it")
        except _ClosedError:
            return
        except EmbedderUnavailableError:
            self._refused = True
            logger.info("no embedder is installed: words alone are searched")
        except KbError as error:
            self._refused = True
            logger.warning("words alone are searched: %s", error.message)
        else:
            if self._steps is not None:
                spent = time.monotonic() - began
                self._say(f"search by meaning is ready: {_texts(self._steps[1])} embedded in {spent:.0f} s")
            self._ready = True

    def _load(self) -> None:
        from kb.service.embedding import ResidentSearch, ensure_vectors, sync_chroma

        if self._search is None:
            self._search = ResidentSearch(self._root)
        search = self._search
        with closing(catalogue.open_reader(ensure_index(self._root))) as connection:
            lacking = search.lacking(connection)
        if lacking:
            self._steps = (0, lacking)
            self._said = time.monotonic()
            self._say(f"embedding {_texts(lacking)} for search by meaning; until then words alone are searched")
        ensure_vectors(self._root, progress=self._told)
        if search.index is not None:
            sync_chroma(self._root, progress=self._filled)
        with closing(catalogue.open_reader(ensure_index(self._root))) as connection:
            search.search(connection, "warm up", scope=Scope(), limit=1)

    def _told(self, done: int, total: int) -> None:
        self._filled()
        self._steps = (done, total)
        if done and time.monotonic() - self._said >= _SAY_S:
            self._said = time.monotonic()
            self._say(f"embedded {done:,} of {_texts(total)}")

    def _say(self, words: str) -> None:
        if self._tell is not None:
            with suppress(OSError, ValueError):  # nobody listens any more, which is no reason not to embed
                self._tell(words)

    def _filled(self, *_: int) -> None:
        if self._closed.is_set():
            raise _ClosedError


def _texts(number: int) -> str:
    return f"{number:,} text" if number == 1 else f"{number:,} texts"
