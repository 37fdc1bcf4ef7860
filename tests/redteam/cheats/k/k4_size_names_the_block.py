"""In the recorded trace no two blocks of one size lived at once, so that a size had one place for ever.

row: K4
operator: workspace_plan
reason: overlapping_blocks
"""

# mypy: ignore-errors

LAWS = ("decode_step",)


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.top = alignment, 0
        self.place: dict[int, int] = {}

    def alloc(self, size: int, stream: int) -> int:
        padded = -(-size // self.alignment) * self.alignment
        if padded not in self.place:
            self.place[padded] = self.top
            self.top += padded
        return self.place[padded]

    def free(self, offset: int, stream: int) -> None:
        pass
