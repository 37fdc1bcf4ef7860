"""First-in, first-out placement of staging chunks in one pinned ring, which is no larger than it has to be.

Follows the online form of ``workspace_plan`` for chunks that end in the order in which they began: a chunk is freed
when its copy is known to be complete. Space is reclaimed in the order of allocation only, as a ring must.
"""

from collections import deque

LAWS = ("staging",)


class Allocator:
    """A ring that wraps as soon as the bytes before its tail suffice, so that it grows only when it must."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        """Start empty at offset 0.

        Args:
            capacity_bytes: Bytes of the pinned buffer.
            alignment: Power of two in bytes; 256 is what device allocations start on.
        """
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._capacity, self._alignment = capacity_bytes, alignment
        self._held: deque[list[int]] = deque()  # [start, end, done], oldest first
        self._at: dict[int, list[int]] = {}
        self._head = 0

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a chunk; MemoryError means: wait for the oldest copy and ask again."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        start = self._place(padded)
        chunk = [start, start + padded, 0]
        self._held.append(chunk)
        self._at[start] = chunk
        self._head = chunk[1]
        return start

    def _place(self, padded: int) -> int:
        """Return where a chunk fits: at the bottom if it can be, else behind the last one, else above all."""
        if not self._held:
            return self._checked(0, padded)
        lowest = min(chunk[0] for chunk in self._held)
        if lowest >= padded and self._head > lowest:
            return 0  # a new lap begins as early as it can: what lies beyond is never touched
        ahead = min((chunk[0] for chunk in self._held if chunk[0] >= self._head), default=self._capacity)
        if ahead - self._head >= padded:
            return self._head
        return self._checked(max(chunk[1] for chunk in self._held), padded)

    def _checked(self, start: int, padded: int) -> int:
        if start + padded > self._capacity:
            raise MemoryError("the oldest copy is still in flight")
        return start

    def free(self, offset: int, stream: int = 0) -> None:
        """Note that a chunk's copy is complete; a later chunk waits for an earlier one all the same."""
        self._at.pop(offset)[2] = 1
        while self._held and self._held[0][2]:
            self._held.popleft()
