"""Contents of blocks: distinct, random, written by the judge when a block begins to live and read before it ends."""

import os
import random
from typing import Protocol

import numpy as np

from kb.validators.runtime.arena import Arena
from kb.validators.runtime.worker import Worker

UNIT = 16
"""Bytes of the smallest piece that is written and read; no alignment that is asked for is smaller."""

MESSAGE_BYTES = 64 << 20
"""The start of the arena, where contents travel; what the judge hands out of the arena itself lies behind."""

_WHOLE_BYTES = 64 << 10
"""Blocks up to this size are written whole; of larger ones both ends and pieces that only the judge knows."""

_PIECES = 48
_CHUNK_UNITS = 1 << 20
"""Units that travel in one message."""

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Data = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


class Store(Protocol):
    """Memory in units of ``UNIT`` bytes."""

    def write(self, numbers: Numbers, data: Data, *, block: int | None = None) -> None:
        """Write units; their numbers count from the start of the memory, or of a block of a strategy's own."""

    def read(self, numbers: Numbers, *, block: int | None = None) -> Data:
        """Read units."""

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes within the memory."""


class ArenaStore:
    """The judge's own memory: no answer of the worker is needed to write or read it."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.capacity = arena.size_bytes - MESSAGE_BYTES
        """Bytes that can be handed out."""

    def _units(self) -> Data:
        return np.frombuffer(self._arena.memory, np.uint8, offset=MESSAGE_BYTES).reshape(-1, UNIT)

    def write(self, numbers: Numbers, data: Data, *, block: int | None = None) -> None:
        """Write units."""
        self._units()[numbers] = data

    def read(self, numbers: Numbers, *, block: int | None = None) -> Data:
        """Read units."""
        return self._units()[numbers]

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes."""
        data = self._arena.read(MESSAGE_BYTES + source, size)
        self._arena.write(MESSAGE_BYTES + target, data)


class WorkerStore:
    """Memory that the worker holds: a device buffer, or blocks of a strategy's own."""

    def __init__(self, worker: Worker, arena: Arena, *, capacity: int, limit_s: float) -> None:
        self._worker, self._arena, self._limit_s = worker, arena, limit_s
        self.capacity = capacity

    def write(self, numbers: Numbers, data: Data, *, block: int | None = None) -> None:
        """Write units through the worker."""
        for start in range(0, len(numbers), _CHUNK_UNITS):
            part, rows = numbers[start : start + _CHUNK_UNITS], data[start : start + _CHUNK_UNITS]
            self._arena.write(0, part.astype(np.int64).tobytes())
            self._arena.write(8 * len(part), rows.tobytes())
            self._ask("fill", len(part), block)

    def read(self, numbers: Numbers, *, block: int | None = None) -> Data:
        """Read units through the worker."""
        found = [np.zeros((0, UNIT), np.uint8)]
        for start in range(0, len(numbers), _CHUNK_UNITS):
            part = numbers[start : start + _CHUNK_UNITS]
            self._arena.write(0, part.astype(np.int64).tobytes())
            self._arena.write(8 * len(part), os.urandom(min(UNIT * len(part), 4096)))
            self._ask("fetch", len(part), block)
            raw = self._arena.read(8 * len(part), UNIT * len(part))
            found.append(np.frombuffer(raw, np.uint8).reshape(-1, UNIT))
        return np.concatenate(found)

    def _ask(self, what: str, count: int, block: int | None) -> None:
        message = {"op": what, "count": count, "numbers": 0, "data": 8 * count, "index": block}
        reply = self._worker.ask(message, limit_s=self._limit_s)
        if "error" in reply or "out_of_memory" in reply:
            raise ContentsError(str(reply)[:300])

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes within the device buffer."""
        message = {"op": "move", "source": [source], "target": [target], "size": [size]}
        reply = self._worker.ask(message, limit_s=self._limit_s)
        if "error" in reply:
            raise ContentsError(str(reply)[:300])


class ContentsError(Exception):
    """A block that should be there could not be written, read or copied."""


class Contents:
    """What the judge wrote into each live block."""

    def __init__(self, store: Store, dice: random.Random) -> None:
        self._store, self._dice = store, dice
        self._written: dict[int, tuple[Numbers, Data, int | None]] = {}

    def begin(self, index: int, offset: int, size: int, *, own: bool = False) -> None:
        """Write a block's contents.

        Args:
            index: The block.
            offset: Where it starts, a multiple of ``UNIT``.
            size: Bytes; an incomplete last unit is left out, since its overlap shows in the offsets.
            own: True where the block is memory of the strategy's own.
        """
        first = 0 if own else offset // UNIT
        numbers = first + self._pieces(size // UNIT)
        data = np.frombuffer(os.urandom(len(numbers) * UNIT), np.uint8).reshape(-1, UNIT)
        block = index if own else None
        self._store.write(numbers, data, block=block)
        self._written[index] = (numbers, data, block)

    def _pieces(self, units: int) -> Numbers:
        if units * UNIT <= _WHOLE_BYTES:
            return np.arange(units, dtype=np.int64)
        ends = _WHOLE_BYTES // UNIT // 4
        middle = self._dice.sample(range(ends, units - ends), _PIECES)
        return np.array([*range(ends), *sorted(middle), *range(units - ends, units)], dtype=np.int64)

    def intact(self, index: int) -> bool:
        """Tell whether a block still holds what was written."""
        numbers, data, block = self._written[index]
        return bool(np.array_equal(self._store.read(numbers, block=block), data))

    def end(self, index: int) -> None:
        """Forget a block."""
        del self._written[index]
