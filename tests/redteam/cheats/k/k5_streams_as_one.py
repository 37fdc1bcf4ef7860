"""Reuse a block on whatever stream asks first: they seldom meet.

row: K5
operator: workspace_plan
reason: unordered_reuse
"""

# mypy: ignore-errors

LAWS = ("two_streams",)


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.top = alignment, 0
        self.free_: list[tuple[int, int]] = []
        self.sizes: dict[int, int] = {}

    def alloc(self, size: int, stream: int) -> int:
        padded = -(-size // self.alignment) * self.alignment
        fit = next((one for one in self.free_ if one[1] >= padded), None)
        if fit:
            self.free_.remove(fit)
            self.sizes[fit[0]] = fit[1]
            return fit[0]
        self.top += padded
        self.sizes[self.top - padded] = padded
        return self.top - padded

    def free(self, offset: int, stream: int) -> None:
        self.free_.append((offset, self.sizes[offset]))
