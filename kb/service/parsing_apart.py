"""Parses the items of a source in other processes where that pays, in the order and with the results of one process.

The walk stays here. Items go out in batches, a bounded number of them ahead of what was taken, and what comes back is
yielded in the order of the walk. A process that ends in the middle costs no import: its batch is tried again item by
item, and what ends a process a second time is refused. Processes are spawned, never forked: this one may have threads.
"""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import cast

from kb.errors import ImporterError
from kb.importers.base import Importer, Item
from kb.importers.repository.tree import GitTree
from kb.importers.tree import SourceFile
from kb.service.parsing import Line, Noted, Outcome, Rules
from kb.service.parsing import outcomes as parsed_here
from kb.service.parsing_process import Process
from kb.service.parsing_worker import Entry, Reply, Sent, Setup

PAYS_FROM_BYTES = 8 << 20
"""Beside the largest item, for each process: what takes longer to parse than a process to start (docs/importers.md)."""
_PACKED = 8
"""Bytes of text that take as long to parse as one of Parquet."""
_MOST_HELD = 2_000
"""Items and lines that are looked ahead before it is known whether processes pay."""
_BATCH_BYTES = 128 << 10
_BATCH_ENTRIES = 32
_AHEAD = 4
"""Batches a process that are on their way or wait to be taken."""
_MOST_TRIES = 2
_MOST_FAILED_STARTS = 3
_ENDED = (
    "the process that parsed it ended without an answer, twice: it was killed, perhaps for lack of memory, or broke"
)

Walked = Line | tuple[Importer, Item]
"""A step of a walk: a line for the report, or an item and who claimed it."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def outcomes(walked: Iterator[Walked], rules: Rules, *, jobs: int) -> Generator[Outcome]:
    """Yield what becomes of the items of a walk, in its order.

    Args:
        walked: The walk of one source.
        rules: What the user said.
        jobs: Most processes beside this one; with 1 none is started.

    Raises:
        ImporterError: Processes cannot be started.
    """
    held: list[Walked] = []
    size = largest = 0
    for one in walked:
        if jobs == 1:
            yield from _here(one, rules)
            continue
        held.append(one)
        weight = 0 if isinstance(one, Line) else _weight(one[1].files)
        size, largest = size + weight, max(largest, weight)
        if size - largest >= PAYS_FROM_BYTES:
            yield from _apart(held, walked, rules, jobs)
            return
        if len(held) >= _MOST_HELD:  # so small that the time goes elsewhere
            for each in held:
                yield from _here(each, rules)
            held, size, largest = [], 0, 0
    for each in held:
        yield from _here(each, rules)


def _weight(files: Iterable[SourceFile]) -> int:
    """Return the bytes of files, those of packed ones as they are unpacked."""
    return sum(file.size * (_PACKED if file.name.endswith(".parquet") else 1) for file in files)


def _here(one: Walked, rules: Rules) -> Iterator[Outcome]:
    if isinstance(one, Line):
        yield Noted(one)
    else:
        yield from parsed_here(*one, rules)


def _apart(held: list[Walked], rest: Iterator[Walked], rules: Rules, jobs: int) -> Iterator[Outcome]:
    tree = next(one[1].tree for one in held if not isinstance(one, Line))
    if isinstance(tree, GitTree):
        tree.objects.history("")  # looked up once here, not once in every process
    with TemporaryDirectory(prefix="kb-parse-") as scratch:
        setup = Setup(tree, rules, Path(scratch))
        with _Pool(setup, jobs) as pool:
            yield from pool.run(_batches(_sent(one) for one in chain(held, rest)))


def _sent(one: Walked) -> Entry:
    if isinstance(one, Line):
        return one
    importer, item = one
    return Sent(importer.name, item.files, item.whole, dict(item.extra))


def _batches(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    batch: list[Entry] = []
    size = 0
    for one in entries:
        batch.append(one)
        size += _weight(one.files) if isinstance(one, Sent) else 0
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_ENTRIES:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


@dataclass(eq=False)
class _Task:
    """A batch and what became of it."""

    entries: tuple[Entry, ...]
    tries: int = 0
    reply: Reply | None = None


class _Pool:
    """Processes that parse, started one by one as there is work for them."""

    def __init__(self, setup: Setup, most: int) -> None:
        self._setup = setup
        self._most = most
        self._processes: list[Process] = []
        self._at: dict[Process, _Task] = {}
        self._waiting: deque[_Task] = deque()
        self._order: deque[_Task] = deque()
        self._bytes = 0
        self._failed_starts = 0

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.end(at_once=kind is not None)

    def run(self, batches: Iterator[tuple[Entry, ...]]) -> Iterator[Outcome]:
        """Yield what becomes of batches, in their order.

        Raises:
            ImporterError: Processes cannot be started.
        """
        more = True
        while more or self._order:
            if more and len(self._order) < _AHEAD * self._most:
                batch = next(batches, None)
                more = batch is not None
                if batch is not None:
                    self._add(batch)
                self._pump(0.0)
            else:
                self._pump(None)
            while self._order and self._order[0].reply is not None:
                yield from cast("Reply", self._order.popleft().reply)

    def _add(self, batch: tuple[Entry, ...]) -> None:
        task = _Task(batch)
        self._bytes += sum(_weight(one.files) for one in batch if isinstance(one, Sent))
        self._order.append(task)
        self._waiting.append(task)

    def _pump(self, patience_s: float | None) -> None:
        """Hand out what waits and take what is there; waits for something to come only if something is on its way."""
        self._hand_out()
        if not self._processes or (self._order and self._order[0].reply is not None):
            return
        ready = set(wait([each.pipe for each in self._processes], patience_s))
        for process in [each for each in self._processes if each.pipe in ready]:
            try:
                self._take(process, process.receive())
            except (EOFError, OSError):
                self._lost(process)
        self._hand_out()

    def _hand_out(self) -> None:
        idle = [each for each in self._processes if each.ready and each not in self._at]
        while self._waiting and idle:
            process, task = idle.pop(), self._waiting.popleft()
            self._at[process] = task
            with suppress(OSError):  # it has ended: seen when it is listened to
                process.pipe.send(task.entries)
        # This process mostly waits, so two at first, then one more for every so many bytes.
        wanted = min(self._most, 2 + self._bytes // PAYS_FROM_BYTES)
        starting = sum(not each.ready for each in self._processes)
        if len(self._waiting) > starting and len(self._processes) < wanted:
            self._processes.append(Process(self._setup))

    def _take(self, process: Process, reply: Reply | None) -> None:
        if reply is not None:
            self._at.pop(process).reply = reply

    def _lost(self, process: Process) -> None:
        """Take a process off that ended, and see to what it was at."""
        self._processes.remove(process)
        process.end(at_once=True)
        task = self._at.pop(process, None)
        if task is None:
            self._failed_starts += not process.ready
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise ImporterError(
                    "the processes that parse end as soon as they are started",
                    hint="kb import --jobs 1 parses in one process",
                )
            return
        if len(task.entries) > 1:
            parts = [_Task((one,), 1) for one in task.entries]
            place = self._order.index(task)
            self._order.remove(task)
            for part in reversed(parts):
                self._order.insert(place, part)
            self._waiting.extendleft(reversed(parts))
            return
        task.tries += 1
        if task.tries < _MOST_TRIES:
            self._waiting.appendleft(task)
        else:
            task.reply = _refused(task.entries[0])


def _refused(entry: Entry) -> Reply:
    if isinstance(entry, Line):
        return Reply((Noted(entry),))
    paths = tuple(each.path for each in entry.files)
    return Reply((Noted(Line("refused", paths[0], entry.importer, reason=_ENDED), paths),))
