"""One arena used from both ends: large blocks from the bottom, small ones from the top, best fit in each.

Follows the online form of ``workspace_plan``. One stream.
"""

LAWS = (
    "decode_step", "prefill_chunk", "encoder_step", "growing_prompts", "random_sizes", "nested", "staging",
)  # fmt: skip

SMALL = 1 << 20
"""Blocks below this many bytes live at the top."""


class Allocator:
    """Two free lists that grow towards each other; neither ever splits what the other needs whole."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._alignment = alignment
        self._low, self._high = 0, capacity_bytes // alignment * alignment
        self._free: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        self._sizes: dict[int, int] = {}

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a block at the end that its size belongs to."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        small = padded < SMALL
        free = self._free[small]
        fits = [(end - start, start) for start, end in free if end - start >= padded]
        if fits:
            length, start = min(fits)
            free.remove((start, start + length))
            if length > padded:
                free.append((start + padded, start + length))
        else:
            start = self._grow_down(free, padded) if small else self._grow_up(free, padded)
        self._sizes[start] = padded
        return start

    def _grow_up(self, free: list[tuple[int, int]], padded: int) -> int:
        tail = next((one for one in free if one[1] == self._low), None)
        start = tail[0] if tail else self._low
        if start + padded > self._high:
            raise MemoryError(f"{padded} bytes")
        if tail:
            free.remove(tail)
        self._low = start + padded
        return start

    def _grow_down(self, free: list[tuple[int, int]], padded: int) -> int:
        tail = next((one for one in free if one[0] == self._high), None)
        start = (tail[1] if tail else self._high) - padded
        if start < self._low:
            raise MemoryError(f"{padded} bytes")
        if tail:
            free.remove(tail)
        self._high = start
        return start

    def free(self, offset: int, stream: int = 0) -> None:
        """Give a block back to its end; what is free at the border goes back to the middle."""
        size = self._sizes.pop(offset)
        small = size < SMALL
        free = self._free[small]
        start, end = offset, offset + size
        for one in list(free):
            if one[1] == start or one[0] == end:
                free.remove(one)
                start, end = min(start, one[0]), max(end, one[1])
        if small and start == self._high:
            self._high = end
        elif not small and end == self._low:
            self._low = start
        else:
            free.append((start, end))
