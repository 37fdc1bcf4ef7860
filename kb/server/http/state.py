"""What all routes of one server share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kb.config import Root
from kb.knowledge_base import KnowledgeBase
from kb.server.http.judging import Queue
from kb.server.http.measuring import Metrics
from kb.server.http.remembered import Remembered
from kb.server.http.settings import Settings
from kb.service.resident import Resident
from kb.service.tokens import Tokens

T = TypeVar("T")

_SEARCHERS = 2
_WORKERS = 4
_ANSWERS = 512
"""Answers to searches that are kept for those who ask the same, until anything changes."""


class State:
    """One knowledge base behind one server."""

    def __init__(self, root: Root, settings: Settings, *, say: Callable[[str], None] | None = None) -> None:
        """Name the parts; nothing is read.

        Args:
            root: The knowledge base.
            settings: How the server is set up.
            say: Told in words what is embedded for searches by meaning, where anything has to be.
        """
        self.root = root
        self.settings = settings
        self.resident = Resident(root, semantic=settings.semantic, say=say)
        self.remembered = Remembered()
        self.found = Remembered(_ANSWERS)
        self.tokens = Tokens()
        self.metrics = Metrics()
        self.queue = Queue(settings.limits, self.metrics.judged)
        self.knowledge = KnowledgeBase(root, resident=self.resident, judge=self.queue.judge)
        self._searchers = ThreadPoolExecutor(_SEARCHERS, thread_name_prefix="search")
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="work")

    async def quick(self, work: Callable[[], T]) -> T:
        """Run what takes milliseconds, beside nothing that takes longer."""
        return await asyncio.get_running_loop().run_in_executor(self._searchers, work)

    async def slow(self, work: Callable[[], T]) -> T:
        """Run what may take seconds: git, the matrix, a seed plan."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    def close(self) -> None:
        """Let go of threads, files and connections; waits for what runs."""
        self._searchers.shutdown(wait=True, cancel_futures=True)
        self._workers.shutdown(wait=True, cancel_futures=True)
        self.resident.close()
