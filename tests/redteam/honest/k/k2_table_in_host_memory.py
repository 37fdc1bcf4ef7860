"""Spends a few megabytes of host memory on a table that makes its choice quick.

operator: workspace_plan
"""

# mypy: ignore-errors

LAWS = ("staging", "nested")


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.capacity = alignment, capacity_bytes
        self.order = [max(0, (size - 1).bit_length()) for size in range(1 << 18)]
        self.free_: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}
        self.top = 0

    def alloc(self, size: int, stream: int) -> int:
        power = self.order[size] if size < len(self.order) else (size - 1).bit_length()
        room = max(self.alignment, 1 << power)
        if self.free_.get(room):
            offset = self.free_[room].pop()
        else:
            if self.top + room > self.capacity:
                raise MemoryError(size)
            offset, self.top = self.top, self.top + room
        self.sizes[offset] = room
        return offset

    def free(self, offset: int, stream: int) -> None:
        room = self.sizes.pop(offset)
        self.free_.setdefault(room, []).append(offset)
        if not self.sizes:
            self.free_.clear()
            self.top = 0
