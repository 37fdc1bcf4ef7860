"""A process that parses what it is sent until its pipe is closed; started by :mod:`kb.service.parsing_apart`."""

import logging
import pickle
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from kb.importers import registry
from kb.importers.base import Item
from kb.importers.tree import SourceFile, Tree
from kb.service.parsing import Line, Noted, Outcome, Rules, outcomes

READY = "ready"
"""First message of a process."""
MOST_HELD_BYTES = 1 << 20
"""Drafts of one batch that travel through the pipe; more go through a file, so that memory stays bounded."""


@dataclass(frozen=True, slots=True)
class Sent:
    """An item without its tree, which a process has already."""

    importer: str
    files: tuple[SourceFile, ...]
    whole: bool
    extra: Mapping[str, str]


Entry = Line | Sent
"""What stands in a batch: an item to parse, or a line of the walk that has to stay in its place."""


@dataclass(frozen=True)
class Setup:
    """What a process has to know."""

    tree: Tree
    rules: Rules
    scratch: Path
    """Folder for what is too large for the pipe."""


@dataclass(frozen=True)
class Reply:
    """What became of a batch, in its order."""

    outcomes: tuple[Outcome, ...] = ()
    file: Path | None = None
    """Pickled outcomes one after another; whoever reads them removes it."""

    def __iter__(self) -> Iterator[Outcome]:
        yield from self.outcomes
        if self.file is not None:
            with self.file.open("rb") as kept, suppress(EOFError):
                while True:
                    yield pickle.load(kept)  # noqa: S301 - written by a process of our own
            self.file.unlink()


@dataclass
class Kept:
    """Collects outcomes: in memory as long as they are few."""

    scratch: Path
    held: list[Outcome] = field(default_factory=list)
    size: int = 0

    def reply(self, found: Iterable[Outcome]) -> Reply:
        """Collect all; from :data:`MOST_HELD_BYTES` on the rest goes to a file, one outcome at a time."""
        left = iter(found)
        for one in left:
            self.held.append(one)
            self.size += 500 if isinstance(one, Noted) else len(one.body)
            if self.size > MOST_HELD_BYTES:
                break
        else:
            return Reply(tuple(self.held))
        with tempfile.NamedTemporaryFile(dir=self.scratch, delete=False) as file:
            for one in left:
                pickle.dump(one, file, protocol=pickle.HIGHEST_PROTOCOL)
        return Reply(tuple(self.held), Path(file.name))


def parsed(batch: Iterable[Entry], setup: Setup) -> Iterator[Outcome]:
    """Yield what becomes of the entries of a batch, in their order."""
    for entry in batch:
        if isinstance(entry, Line):
            yield Noted(entry)
        else:
            item = Item(setup.tree, entry.files, entry.whole, entry.extra)
            yield from outcomes(registry.importer(entry.importer), item, setup.rules)


def work(pipe: Connection, setup: Setup) -> None:
    """Answer batches until the other end is closed, which is also how the end of its owner is noticed.

    Args:
        pipe: Batches come in, replies go out.
        setup: What it has to know.
    """
    # A terminal sends Ctrl-C to all processes: the one that was asked ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.WARNING)  # what is wrong with a plug-in was said by the process that started this one
    registry.importers()
    logging.disable(logging.NOTSET)
    answer: object = READY
    while True:
        try:
            pipe.send(answer)
            batch = pipe.recv()
        except (EOFError, OSError):
            return
        answer = Kept(setup.scratch).reply(parsed(batch, setup))
