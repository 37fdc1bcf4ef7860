"""A cache of freed blocks by exact size: never splits, never merges. What a first pool of buffers usually is.

Follows the online form of ``workspace_plan``. One stream.
"""

LAWS = ("decode_step", "prefill_chunk", "encoder_step", "staging")
"""Traces of one step: where sizes never come again there is nothing to reuse, and the cache is emptied all the time."""


class Allocator:
    """A free list for every size; a size that has none gets new bytes, and gives up the others only when it must."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._capacity, self._alignment = capacity_bytes, alignment
        self._free: dict[int, list[int]] = {}  # size -> offsets that are cached
        self._sizes: dict[int, int] = {}  # offset -> size, live or cached

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a cached block of exactly this size, else of new bytes."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        cached = self._free.get(padded)
        if cached:
            return cached.pop()
        offset = self._new(padded)
        if offset is None:
            # As a driver's allocation that fails: give the whole cache back, and ask once more.
            for offsets in self._free.values():
                for one in offsets:
                    del self._sizes[one]
            self._free.clear()
            offset = self._new(padded)
        if offset is None:
            raise MemoryError(f"{padded} bytes")
        self._sizes[offset] = padded
        return offset

    def _new(self, padded: int) -> int | None:
        """Return the first gap between blocks that are live or cached."""
        at = 0
        for start, size in sorted(self._sizes.items()):
            if start - at >= padded:
                return at
            at = start + size
        return at if at + padded <= self._capacity else None

    def free(self, offset: int, stream: int = 0) -> None:
        """Keep a block for the next request of its size."""
        self._free.setdefault(self._sizes[offset], []).append(offset)
