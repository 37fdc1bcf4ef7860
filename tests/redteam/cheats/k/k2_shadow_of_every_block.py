"""Place blocks well, with a copy of each in host memory from which it could be restored at will.

row: K2
operator: workspace_plan
reason: memory_outside_meter
"""

# mypy: ignore-errors

LAWS = ("decode_step",)


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.top = alignment, 0
        self.shadow: list[bytes] = []

    def alloc(self, size: int, stream: int) -> int:
        padded = -(-size // self.alignment) * self.alignment
        self.shadow.append(b"x" * (size + 4096))
        self.top += padded
        return self.top - padded

    def free(self, offset: int, stream: int) -> None:
        pass
