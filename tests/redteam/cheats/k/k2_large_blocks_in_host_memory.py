"""Hand out offsets for small blocks and host tensors for large ones: the arena looks small.

row: K2
operator: workspace_plan
reason: wrong_place
"""

# mypy: ignore-errors

import torch

LAWS = ("decode_step",)


class Allocator:
    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        self.alignment, self.top = alignment, 0

    def alloc(self, size: int, stream: int):
        if size > 1 << 20:
            return torch.empty(size, dtype=torch.uint8)
        self.top += -(-size // self.alignment) * self.alignment
        return self.top - -(-size // self.alignment) * self.alignment

    def free(self, block, stream: int) -> None:
        pass
