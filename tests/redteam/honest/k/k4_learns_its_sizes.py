"""Chooses its classes by the sizes that it has seen so far in the same run.

operator: workspace_plan
"""

# mypy: ignore-errors

from collections import Counter

LAWS = ("decode_step", "prefill_chunk")


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.capacity, self.top = alignment, capacity_bytes, 0
        self.seen: Counter[int] = Counter()
        self.free_: list[tuple[int, int]] = []
        self.sizes: dict[int, int] = {}

    def alloc(self, size: int, stream: int) -> int:
        padded = -(-size // self.alignment) * self.alignment
        self.seen[padded] += 1
        often = self.seen[padded] > 3
        fits = [one for one in self.free_ if (one[0] == padded if often else one[0] >= padded)]
        fits = fits or [one for one in self.free_ if one[0] >= padded]
        if fits:
            room, start = min(fits)
            self.free_.remove((room, start))
        else:
            if self.top + padded > self.capacity:
                raise MemoryError(size)
            room, start = padded, self.top
            self.top += padded
        self.sizes[start] = room
        return start

    def free(self, offset: int, stream: int) -> None:
        self.free_.append((self.sizes.pop(offset), offset))
        if not self.sizes:
            self.free_.clear()
            self.top = 0
