"""One process that parses, and the pipe to it."""

import multiprocessing
from multiprocessing.connection import Connection

from kb.service.parsing_worker import READY, Reply, Setup, work

_PATIENCE_S = 5.0
"""For a process without work to end by itself."""


class Process:
    """A process that parses batches; at most one is on its way to it."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.ready = False
        """Whether it has started."""
        # A daemon: should this process end without having ended it, it is ended on the way out.
        self._process = context.Process(target=work, args=(theirs, setup), name="kb-parse", daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()  # else the end of the process would not be noticed here

    def receive(self) -> Reply | None:
        """Return the reply to the last batch; None for the word that it is ready.

        Raises:
            EOFError: It has ended.
            OSError: Likewise.
        """
        answer = self.pipe.recv()
        if isinstance(answer, Reply):
            return answer
        self.ready = self.ready or answer == READY
        return None

    def end(self, *, at_once: bool) -> None:
        """End it.

        Args:
            at_once: Whatever it is at; else it ends by itself, as its pipe is closed.
        """
        self.pipe.close()
        if not at_once:
            self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
