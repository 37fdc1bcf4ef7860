"""What every token of every sequence is: sequences that share a token must find the same bytes, others never do."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kb.validators.operators.allocation import KEY_TOKENS, Request
from kb.validators.runtime.allocation.stores import UNIT, Data, Numbers

_NOISE_UNITS = 1 << 18
_WHOLE_BYTES = 256
"""Tokens up to this size are written whole, of larger ones two units at a place of their own."""

_SLOT_UNITS = 96

Identity = tuple[str, int, int]
"""(kind, whose, position)."""


@dataclass
class Sequence:
    """One sequence that is being served."""

    number: int
    request: Request
    tokens: int = 0
    """Tokens that it has now."""
    left: int = 0
    """Tokens that it still generates."""
    own_from: int = 0
    """First position whose token nobody else has, but for what forks from it."""
    parent: "Sequence | None" = None
    table: list[int] = field(default_factory=list)
    slot: int | None = None
    state: int = 0
    """Number of the state's contents; a new one each time they change."""

    def identity(self, position: int) -> Identity:
        """Return what the token at a position is."""
        if self.parent is not None and position < self.own_from:
            return self.parent.identity(position)
        block = position // KEY_TOKENS
        if block < len(self.request.keys) and position < self.request.prompt:
            return "key", self.request.keys[block], position
        return "own", self.number, position


class Tokens:
    """Contents of tokens and states, and how many distinct ones are alive."""

    def __init__(self, token_bytes: int, slot_bytes: int) -> None:
        self.token_bytes, self.slot_bytes = token_bytes, slot_bytes
        noise = os.urandom((_NOISE_UNITS + 1024) * UNIT)
        self._noise = np.frombuffer(noise, np.uint8).reshape(-1, UNIT)
        self._salt = os.urandom(16)
        self.alive: Counter[Identity] = Counter()
        self.slots = 0

    def live_bytes(self) -> int:
        """Return the bytes of the distinct tokens and states that are alive: nothing can do with less."""
        return len(self.alive) * self.token_bytes + self.slots * self.slot_bytes

    def _start(self, what: object) -> int:
        digest = hashlib.blake2b(repr(what).encode(), digest_size=8, key=self._salt).digest()
        return int.from_bytes(digest, "big")

    def _places(self, start: int) -> list[int]:
        """Return the units of a token that are written, relative to its start."""
        units = self.token_bytes // UNIT
        if self.token_bytes <= _WHOLE_BYTES:
            return list(range(units))
        return sorted({start % units, (start >> 20) % units})

    def contents(self, sequence: Sequence, positions: Iterable[int], page_tokens: int) -> tuple[Numbers, Data]:
        """Return the units of tokens and what belongs there.

        Args:
            sequence: Whose; its table says where the pages are.
            positions: Which tokens.
            page_tokens: Tokens a page holds.
        """
        numbers: list[int] = []
        rows: list[int] = []
        for position in positions:
            start = self._start(sequence.identity(position))
            page = sequence.table[position // page_tokens]
            first = (page + position % page_tokens * self.token_bytes) // UNIT
            places = self._places(start)
            numbers += [first + place for place in places]
            rows += [start % _NOISE_UNITS + step for step in range(len(places))]
        return np.array(numbers, dtype=np.int64), self._noise[rows]

    def state(self, sequence: Sequence) -> tuple[Numbers, Data]:
        """Return the units of a sequence's state that are written, and what belongs there."""
        start = self._start(("state", sequence.state))
        units = self.slot_bytes // UNIT
        step = max(1, units // _SLOT_UNITS)
        numbers = (sequence.slot or 0) // UNIT + np.arange(start % step, units, step, dtype=np.int64)
        return numbers, self._noise[start % _NOISE_UNITS : start % _NOISE_UNITS + len(numbers)]

    def appear(self, sequence: Sequence, positions: range) -> None:
        """Count tokens of a sequence as alive."""
        self.alive.update(sequence.identity(position) for position in positions)

    def vanish(self, sequence: Sequence) -> None:
        """Count all tokens of a sequence as gone."""
        for position in range(sequence.tokens):
            one = sequence.identity(position)
            self.alive[one] -= 1
            if not self.alive[one]:
                del self.alive[one]
