"""Binary buddies over one range: sizes rounded up to powers of two, a free block merges with its twin alone.

Follows the online form of ``workspace_plan``. One stream.
"""

import heapq

LAWS = (
    "decode_step", "prefill_chunk", "encoder_step", "growing_prompts", "random_sizes", "nested", "staging",
)  # fmt: skip


class Allocator:
    """Free blocks by order, lowest address first; the twin of the block at ``x`` of size ``s`` lies at ``x ^ s``."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        """Cut the capacity into the largest powers of two, each of which is a tree of its own."""
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._least = max(alignment, 256)
        self._heaps: dict[int, list[int]] = {}  # size -> offsets, some of them no longer free
        self._free: set[tuple[int, int]] = set()  # (offset, size)
        self._used: dict[int, int] = {}
        self._roots: set[tuple[int, int]] = set()
        start = 0
        while capacity_bytes - start >= self._least:
            size = 1 << (capacity_bytes - start).bit_length() - 1
            self._roots.add((start, size))
            self._put(start, size)
            start += size

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the lowest block of the smallest order that holds ``size`` bytes, splitting a larger one."""
        wanted = max(self._least, 1 << (max(size, 1) - 1).bit_length())
        found = [(order, offset) for order in self._heaps if order >= wanted and (offset := self._lowest(order)) >= 0]
        if not found:
            raise MemoryError(f"no block of {wanted} bytes")
        order, offset = min(found)
        self._free.remove((offset, order))
        while order > wanted:
            order //= 2
            self._put(offset + order, order)
        self._used[offset] = wanted
        return offset

    def free(self, offset: int, stream: int = 0) -> None:
        """Give a block back and merge it with its twin as long as that is free as well."""
        size = self._used.pop(offset)
        while (offset, size) not in self._roots:
            base = max(start for start, _ in self._roots if start <= offset)
            twin = base + ((offset - base) ^ size)
            if (twin, size) not in self._free:
                break
            self._free.remove((twin, size))
            offset, size = min(offset, twin), size * 2
        self._put(offset, size)

    def _put(self, offset: int, size: int) -> None:
        self._free.add((offset, size))
        heapq.heappush(self._heaps.setdefault(size, []), offset)

    def _lowest(self, size: int) -> int:
        heap = self._heaps[size]
        while heap and (heap[0], size) not in self._free:
            heapq.heappop(heap)  # was taken or merged since
        return heap[0] if heap else -1
