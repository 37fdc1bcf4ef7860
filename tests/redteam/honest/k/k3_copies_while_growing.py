"""Needs twice a block's bytes for a moment, and states the moment as well.

operator: workspace_plan
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.device, self.limit, self.alignment = device, limit_bytes, alignment
        self.live = self.moment = 0

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        room = size + self.alignment
        if self.live + 2 * room > self.limit:
            raise MemoryError(size)
        first = torch.zeros(room, dtype=torch.uint8, device=self.device)
        whole = first.clone()
        self.moment = self.live + 2 * room
        self.live += room
        skip = -whole.data_ptr() % self.alignment
        return whole[skip : skip + size]

    def free(self, block: torch.Tensor, stream: int) -> None:
        self.live -= block.numel() + self.alignment

    def reserved_bytes(self) -> int:
        stated, self.moment = max(self.live, self.moment), 0
        return stated
