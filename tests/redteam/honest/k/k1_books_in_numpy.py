"""Keeps its books in an array outside any framework's counter: a bit for each granule.

operator: workspace_plan
"""

# mypy: ignore-errors

import numpy as np

LAWS = ("nested",)


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment = max(alignment, 256)
        self.used = np.zeros(capacity_bytes // self.alignment, dtype=bool)
        self.sizes: dict[int, int] = {}

    def alloc(self, size: int, stream: int) -> int:
        count = -(-size // self.alignment)
        edges = np.flatnonzero(np.diff(np.concatenate([[True], self.used, [True]]).astype(np.int8)))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if end - start >= count:
                self.used[start : start + count] = True
                self.sizes[int(start) * self.alignment] = count
                return int(start) * self.alignment
        raise MemoryError(size)

    def free(self, offset: int, stream: int) -> None:
        start = offset // self.alignment
        self.used[start : start + self.sizes.pop(offset)] = False
