"""Gives its cache back whenever it grows beyond a bound, and states what it holds before and after.

operator: workspace_plan
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.device, self.limit, self.alignment = device, limit_bytes, alignment
        self.live = self.kept = 0
        self.cache: list[torch.Tensor] = []
        self.whole: dict[int, torch.Tensor] = {}

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        if self.live + self.kept + size + self.alignment > self.limit:
            self.cache.clear()
            self.kept = 0
        if self.live + size + self.alignment > self.limit:
            raise MemoryError(size)
        whole = torch.empty(size + self.alignment, dtype=torch.uint8, device=self.device)
        self.live += whole.numel()
        skip = -whole.data_ptr() % self.alignment
        block = whole[skip : skip + size]
        self.whole[block.data_ptr()] = whole
        return block

    def free(self, block: torch.Tensor, stream: int) -> None:
        whole = self.whole.pop(block.data_ptr())
        self.live -= whole.numel()
        self.cache.append(whole)
        self.kept += whole.numel()
        if self.kept > 64 << 20:
            self.cache.clear()
            self.kept = 0

    def reserved_bytes(self) -> int:
        return self.live + self.kept
