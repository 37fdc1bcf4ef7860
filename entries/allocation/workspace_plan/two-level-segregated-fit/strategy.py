"""Two-level segregated fit: free blocks in lists by power of two and sixteenth of it, found through two bit masks.

Follows the online form of ``workspace_plan``. One stream. After Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic
memory allocator for real-time systems", 2004.
"""

LAWS = (
    "decode_step", "prefill_chunk", "encoder_step", "growing_prompts", "random_sizes", "nested", "staging",
)  # fmt: skip

_BITS = 4
"""Second level: 16 lists to a power of two, so that a block found is at most 1/16 larger than the one asked for."""


class _Block:
    """A range with its neighbours by address."""

    __slots__ = ("after", "before", "free", "size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size, self.free = start, size, False
        self.before: _Block | None = None
        self.after: _Block | None = None


class Allocator:
    """Constant time: one mask look-up a level, no search, merging with both neighbours at once."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._alignment = alignment
        self._first = 0  # bit f: some list of power f holds a block
        self._second: dict[int, int] = {}  # power -> bits of its lists
        self._lists: dict[tuple[int, int], dict[int, _Block]] = {}
        self._used: dict[int, _Block] = {}
        size = capacity_bytes // alignment * alignment
        if size:
            self._put(_Block(0, size))

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a block from the first list whose blocks all fit."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        block = self._find(padded)
        if block is None:
            raise MemoryError(f"{padded} bytes")
        self._remove(block)
        if block.size > padded:
            rest = _Block(block.start + padded, block.size - padded)
            rest.before, rest.after = block, block.after
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, padded
            self._put(rest)
        self._used[block.start] = block
        return block.start

    def free(self, offset: int, stream: int = 0) -> None:
        """Give a block back and merge it with whatever neighbour is free."""
        block = self._used.pop(offset)
        before, after = block.before, block.after
        if after is not None and after.free:
            self._remove(after)
            self._swallow(block, after)
        if before is not None and before.free:
            self._remove(before)
            self._swallow(before, block)
            block = before
        self._put(block)

    def _swallow(self, block: _Block, after: _Block) -> None:
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block

    def _index(self, size: int) -> tuple[int, int]:
        power = size.bit_length() - 1
        return power, size >> max(0, power - _BITS) & (1 << _BITS) - 1

    def _find(self, size: int) -> _Block | None:
        # Round up to the next list, so that every block in it fits and none has to be looked at.
        power, list_ = self._index(size + (1 << max(0, size.bit_length() - 1 - _BITS)) - 1)
        mask = self._second.get(power, 0) >> list_ << list_
        if not mask:
            higher = self._first >> power + 1 << power + 1
            if not higher:
                return self._exact(size)
            power = (higher & -higher).bit_length() - 1
            mask = self._second[power]
        found = self._lists[power, (mask & -mask).bit_length() - 1]
        return found[min(found)]  # lowest address: keeps the far end in one piece

    def _exact(self, size: int) -> _Block | None:
        """Search the list that the size itself belongs to: the last resort before running out."""
        fits = [one for one in self._lists.get(self._index(size), {}).values() if one.size >= size]
        return min(fits, key=lambda one: one.start, default=None)

    def _put(self, block: _Block) -> None:
        block.free = True
        power, list_ = self._index(block.size)
        self._lists.setdefault((power, list_), {})[block.start] = block
        self._second[power] = self._second.get(power, 0) | 1 << list_
        self._first |= 1 << power

    def _remove(self, block: _Block) -> None:
        block.free = False
        power, list_ = self._index(block.size)
        found = self._lists[power, list_]
        del found[block.start]
        if not found:
            self._second[power] &= ~(1 << list_)
            if not self._second[power]:
                self._first &= ~(1 << power)
