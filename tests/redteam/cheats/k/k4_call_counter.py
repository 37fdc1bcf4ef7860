"""Answer the n-th call with the n-th recorded offset.

row: K4
operator: workspace_plan
reason: overlapping_blocks
"""

# mypy: ignore-errors

LAWS = ("nested", "random_sizes")


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.calls = 0

    def alloc(self, size: int, stream: int) -> int:
        self.calls += 1
        return (self.calls % 24) * (1 << 20)

    def free(self, offset: int, stream: int) -> None:
        pass
