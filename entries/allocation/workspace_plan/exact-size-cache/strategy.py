"""A cache of freed blocks by exact size: never splits, never merges. What a first pool of buffers usually is.

Follows the online form of ``workspace_plan``. One stream.
"""

LAWS = ("decode_step", "prefill_chunk", "encoder_step", "staging")
"""Traces of one step, or of few sizes: with sizes that do not come again it runs out of any memory."""


class Allocator:
    """A free list for every size; a size that has none gets new bytes, and gives up the others only when it must."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._capacity, self._alignment = capacity_bytes, alignment
        self._free: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self._top = 0

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a cached block of exactly this size, else of new bytes."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        cached = self._free.get(padded)
        if cached:
            offset = cached.pop()
        else:
            if self._top + padded > self._capacity:
                self._empty()
            if self._top + padded > self._capacity:
                raise MemoryError(f"{padded} bytes")
            offset = self._top
            self._top += padded
        self._sizes[offset] = padded
        return offset

    def _empty(self) -> None:
        """Give up the whole cache: what lies above the last live block can be new again."""
        self._free.clear()
        self._top = max((offset + size for offset, size in self._sizes.items()), default=0)

    def free(self, offset: int, stream: int = 0) -> None:
        """Keep a block for the next request of its size."""
        self._free.setdefault(self._sizes.pop(offset), []).append(offset)
