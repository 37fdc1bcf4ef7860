"""Cut the last bytes off each block: nobody writes to the very end.

row: K5
operator: workspace_plan
reason: overlapping_blocks
"""

# mypy: ignore-errors

LAWS = ("random_sizes", "nested")


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.top = alignment, 0

    def alloc(self, size: int, stream: int) -> int:
        padded = size // self.alignment * self.alignment
        self.top += padded
        return self.top - padded

    def free(self, offset: int, stream: int) -> None:
        pass
