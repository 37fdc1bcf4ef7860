"""Slabs of equal blocks for small sizes, runs of whole slabs for large ones; four size classes to a doubling.

Follows the online form of ``workspace_plan``. One stream.
"""

LAWS = (
    "decode_step", "prefill_chunk", "encoder_step", "growing_prompts", "random_sizes", "nested", "staging",
)  # fmt: skip

SLAB = 64 << 10
"""Bytes of a slab; a block of more than a quarter of it gets slabs of its own."""


def class_of(size: int, alignment: int) -> int:
    """Return the size of the class that serves ``size``: a multiple of a quarter of its power of two."""
    step = max(alignment, 1 << max(0, (max(size, 1) - 1).bit_length() - 3))
    return -(-max(size, 1) // step) * step


class Allocator:
    """Small blocks from the fullest slab of their class; a slab that runs empty can serve any class again."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._alignment = alignment
        self._slabs = capacity_bytes // SLAB
        self._runs: list[tuple[int, int]] = [(0, self._slabs)] if self._slabs else []  # free (first, end), in slabs
        self._open: dict[int, dict[int, list[int]]] = {}  # class -> slab -> free offsets
        self._taken: dict[int, tuple[int, int]] = {}  # offset -> (class or 0, slabs)

    def alloc(self, size: int, stream: int = 0) -> int:
        """Return the offset of a block."""
        block = class_of(size, self._alignment)
        if block > SLAB // 4:
            count = -(-size // SLAB)
            offset = self._take(count) * SLAB
            self._taken[offset] = (0, count)
            return offset
        slabs = self._open.setdefault(block, {})
        partial = [slab for slab, free in slabs.items() if free]
        if partial:
            slab = min(partial, key=lambda one: (len(slabs[one]), one))
        else:
            slab = self._take(1)
            slabs[slab] = [slab * SLAB + place * block for place in reversed(range(SLAB // block))]
        offset = slabs[slab].pop()
        self._taken[offset] = (block, 1)
        return offset

    def _take(self, count: int) -> int:
        fits = [(end - first, first) for first, end in self._runs if end - first >= count]
        if not fits:
            raise MemoryError(f"no run of {count} slabs")
        # The lowest run that fits, not the tightest: what is free for large blocks stays in one piece at the end.
        length, first = min(fits, key=lambda run: run[1])
        self._runs.remove((first, first + length))
        if length > count:
            self._runs.append((first + count, first + length))
        return first

    def free(self, offset: int, stream: int = 0) -> None:
        """Give a block back; its slab becomes free with its last block."""
        block, count = self._taken.pop(offset)
        slab = offset // SLAB
        if block:
            free = self._open[block][slab]
            free.append(offset)
            if len(free) < SLAB // block:
                return
            del self._open[block][slab]
        first, end = slab, slab + count
        for run in list(self._runs):
            if run[1] == first or run[0] == end:
                self._runs.remove(run)
                first, end = min(first, run[0]), max(end, run[1])
        self._runs.append((first, end))
