"""Online placement in one growable virtual reservation, and in fixed segments for comparison.

Follows the online form of ``workspace_plan``: one call at a time, offsets into the reservation. One stream.
"""

LAWS = (
    "decode_step", "prefill_chunk", "encoder_step", "growing_prompts", "random_sizes", "nested", "staging",
)  # fmt: skip

GRANULE = 2 << 20
"""Physical pages are mapped in pieces of this many bytes: the driver's granularity on current GPUs."""


class _BestFit:
    """Free ranges that merge with their neighbours, but never across a wall."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._capacity, self._alignment = capacity_bytes, alignment
        self._free: list[tuple[int, int]] = []  # disjoint (start, end), sorted, never touching but at walls
        self._walls: set[int] = set()  # starts of segments
        self._sizes: dict[int, int] = {}
        self.high = 0
        """End of the highest byte that was ever handed out."""

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of the smallest free range that fits, else grow."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        fits = [block for block in self._free if block[1] - block[0] >= padded]
        start, end = min(fits, key=lambda b: (b[1] - b[0], b[0])) if fits else self._grow(padded)
        self._free.remove((start, end))
        if start + padded < end:
            self._put(start + padded, end)
        self._sizes[start] = padded
        return start

    def free(self, offset: int, stream: int = 0) -> None:
        """Take a block back."""
        self._put(offset, offset + self._sizes.pop(offset))

    def _put(self, start: int, end: int) -> None:
        for one in list(self._free):
            if one[1] == start and start not in self._walls:
                self._free.remove(one)
                start = one[0]
            elif one[0] == end and end not in self._walls:
                self._free.remove(one)
                end = one[1]
        self._free.append((start, end))
        self._free.sort()

    def _grow(self, padded: int) -> tuple[int, int]:
        raise NotImplementedError


class Allocator(_BestFit):
    """One reservation, grown in place: a free tail is extended by the missing bytes rather than left behind."""

    def _grow(self, padded: int) -> tuple[int, int]:
        tail = self._free[-1] if self._free and self._free[-1][1] == self.high else (self.high, self.high)
        end = tail[0] + padded
        if end > self._capacity:
            raise MemoryError(f"{padded} bytes, of which {self._capacity - tail[0]} are left")
        if tail in self._free:
            self._free.remove(tail)
        self.high = end
        self._free.append((tail[0], end))
        return tail[0], end

    def mapped_bytes(self) -> int:
        """Return the physical memory behind the reservation, a multiple of ``GRANULE``."""
        return -(-self.high // GRANULE) * GRANULE


class FixedSegments(_BestFit):
    """Separate segments that no block may span, as without expandable segments; a large request gets its own."""

    SEGMENT = 20 << 20

    def _grow(self, padded: int) -> tuple[int, int]:
        start, end = self.high, self.high + max(padded, self.SEGMENT)
        if end > self._capacity:
            raise MemoryError(f"a segment of {end - start} bytes")
        self._walls.add(start)
        self.high = end
        self._free.append((start, end))
        return start, end
