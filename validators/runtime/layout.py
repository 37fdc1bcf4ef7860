"""Where the arguments of timed calls lie: every slot and every spare at places of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from kb.validators.runtime.arena import Placed, aligned, span_bytes
from kb.validators.runtime.contents import Edit
from kb.validators.runtime.reference import DTYPE_NAMES, storage
from kb.validators.runtime.supply import Drawn

_AT_ONCE = 256
"""Slots of one message: none may grow beyond what the protocol admits."""


class Layout:
    """Places of all tensors of one session."""

    def __init__(
        self,
        drawn: Sequence[Drawn],
        *,
        slots: int,
        moving: Sequence[int],
        shared: Sequence[int],
        sources: Mapping[int, int] | None = None,
    ) -> None:
        """Lay everything out, one after the other.

        Args:
            drawn: ``slots`` sets of arguments, then those of the spares.
            slots: How many of them are slots.
            moving: Positions of the tensors that change in every batch; spares have these alone.
            shared: Positions of the tensors that all slots have in common.
            sources: Slots whose contents are copies of another slot's but for single elements, and that slot.
        """
        self.sources = dict(sources or {})
        self.moving, self.shared, self._slots = tuple(moving), tuple(shared), slots
        self._drawn = list(drawn)
        self.places: list[dict[int, Placed]] = []
        self.size_bytes = 0
        """Shared memory that all of it takes where it lies there itself."""
        common: dict[int, Placed] = {}
        for number, one in enumerate(drawn):
            places: dict[int, Placed] = {}
            for index, argument in enumerate(one.base):
                if not isinstance(argument, torch.Tensor) or (number >= slots and index not in self.moving):
                    continue
                places[index] = common[index] if index in common else self._place(argument)
                if index in self.shared:
                    common[index] = places[index]
            self.places.append(places)

    def _place(self, one: torch.Tensor) -> Placed:
        offset = self.size_bytes
        size = span_bytes(one.shape, one.stride(), one.itemsize)
        self.size_bytes = aligned(offset + size)
        return Placed(DTYPE_NAMES[one.dtype], tuple(one.shape), tuple(one.stride()), offset, size)

    def given(self, number: int, index: int) -> dict[str, Any]:
        """Return how a message names one tensor: of slot or spare ``number``, at position ``index``."""
        home = "all" if index in self.shared else str(number)
        return {"tensor": self.places[number][index].to_json(), "home": f"{home}.{index}"}

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield what tells a worker of all slots and spares."""
        for first in range(0, len(self._drawn), _AT_ONCE):
            rows = range(first, min(first + _AT_ONCE, len(self._drawn)))
            yield {
                "op": "lay",
                "clear": first == 0,
                "moving": list(self.moving),
                "slots": [self._arguments(number) for number in rows if number < self._slots],
                "sources": [[one, self.sources[one]] for one in rows if one in self.sources],
                "spares": [[self.given(number, i) for i in self.moving] for number in rows if number >= self._slots],
            }

    def _arguments(self, number: int) -> list[dict[str, Any]]:
        return [
            self.given(number, index) if isinstance(one, torch.Tensor) else {"value": one}
            for index, one in enumerate(self._drawn[number].base)
        ]

    def lasting(self) -> list[tuple[int, int, bytes]]:
        """Return the contents that are brought once: (slot, position, bytes), shared ones a single time.

        Those of a copy come from its source.
        """
        return [
            (number, index, storage(tensor_at(self._drawn[number], index)))
            for number in range(self._slots)
            if number not in self.sources
            for index in self.places[number]
            if index not in self.moving and (number == 0 or index not in self.shared)
        ]


def tensor_at(one: Drawn, index: int) -> torch.Tensor:
    """Return one argument that is known to be a tensor."""
    return _tensor(one.base[index], index)


def _tensor(found: object, index: int) -> torch.Tensor:
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"argument {index} is no tensor")
    return found


Edits = Sequence[tuple[int, Edit]]
"""Slots, and what is changed in each."""

Contents = tuple[list[list[bytes]], Edits]
"""Bytes of the moving tensors of slots and spares, and what is changed in slots that are copies."""


def contents_of(drawn: Sequence[Drawn], moving: Sequence[int], sources: Mapping[int, int]) -> Contents:
    """Return what is brought for one batch.

    Args:
        drawn: The contents of slots and spares.
        moving: Positions of the tensors that change in every batch.
        sources: Slots that are copies, of which single elements are brought alone.
    """
    whole = [[] if number in sources else moving_bytes(one, moving) for number, one in enumerate(drawn)]
    return whole, [(number, edit) for number in sources for edit in drawn[number].edits]


def moving_bytes(drawn: Drawn, moving: Sequence[int]) -> list[bytes]:
    """Return the bytes of the tensors of one set of arguments that change in every batch."""
    arguments = drawn.arguments
    return [storage(_tensor(arguments[index], index)) for index in moving]
