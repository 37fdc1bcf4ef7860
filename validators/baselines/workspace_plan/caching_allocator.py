"""The rules of torch.cuda's caching allocator, with its default settings, on offsets.

Sizes are rounded to 512 bytes. Up to 1 MiB come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger
ones from segments of their own rounded to 2 MiB. Best fit within a stream's pool; a block is split if more than 512
bytes (small) or 1 MiB (large) would be left; neighbours merge within a segment; segments are kept.
"""

_SMALL, _SMALL_SEGMENT, _MIDDLE, _MIDDLE_SEGMENT, _ROUND = 1 << 20, 2 << 20, 10 << 20, 20 << 20, 2 << 20


class _Range:
    """One block of a segment, free or in use, with its neighbours."""

    def __init__(self, start: int, size: int, pool: tuple[int, bool]) -> None:
        self.start, self.size, self.pool, self.used = start, size, pool, False
        self.before: _Range | None = None
        self.after: _Range | None = None


class Allocator:
    """Segments taken from the driver when nothing cached fits."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self._capacity, self._round = capacity_bytes, max(512, alignment)
        self._reserved = 0
        self._free: dict[tuple[int, bool], list[_Range]] = {}
        self._used: dict[int, _Range] = {}
        self._pending: list[tuple[_Range, int]] = []

    def reserved_bytes(self) -> int:
        """Return the bytes of all segments."""
        return self._reserved

    def alloc(self, size: int, stream: int) -> int:
        """Return the offset of a cached block that fits best, or of one in a new segment."""
        size = -(-size // self._round) * self._round
        pool = (stream, size <= _SMALL)
        free = self._free.setdefault(pool, [])
        fits = [one for one in free if one.size >= size]
        if fits:
            block = min(fits, key=lambda one: (one.size, one.start))
            free.remove(block)
        else:
            block = self._segment(size, pool)
        rest = block.size - size
        if rest >= self._round if pool[1] else rest > _SMALL:
            self._split(block, size)
        block.used = True
        self._used[block.start] = block
        return block.start

    def _segment(self, size: int, pool: tuple[int, bool]) -> _Range:
        length = (
            _SMALL_SEGMENT if size <= _SMALL else _MIDDLE_SEGMENT if size < _MIDDLE else -(-size // _ROUND) * _ROUND
        )
        if self._reserved + length > self._capacity:
            raise MemoryError(f"{size} bytes")
        made = _Range(self._reserved, length, pool)
        self._reserved += length
        return made

    def _split(self, block: _Range, size: int) -> None:
        rest = _Range(block.start + size, block.size - size, block.pool)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._free[block.pool].append(rest)

    def free(self, offset: int, stream: int) -> None:
        """Return a block to the pool of the stream that it was taken for; the caller has ordered the streams."""
        block = self._used.pop(offset)
        if block.pool[0] != stream:
            # What record_stream does: the block stays out of reach until the other stream is known to be done.
            self._pending.append((block, stream))
            return
        self._give(block)

    def _give(self, block: _Range) -> None:
        block.used = False
        free = self._free[block.pool]
        for other in (block.before, block.after):
            if other is not None and not other.used and other in free:
                free.remove(other)
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        free.append(block)

    def wait(self, stream: int, on: int) -> None:
        """Take back blocks that ``on`` was the last to use; a block never changes its own stream."""
        ready = [block for block, user in self._pending if user == on and block.pool[0] == stream]
        self._pending = [row for row in self._pending if row[0] not in ready]
        for block in ready:
            self._give(block)
