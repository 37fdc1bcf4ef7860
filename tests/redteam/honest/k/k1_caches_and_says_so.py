"""Keeps freed blocks for later, and states them as held.

operator: workspace_plan
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.device, self.limit, self.alignment = device, limit_bytes, alignment
        self.cached: list[torch.Tensor] = []
        self.used: dict[int, torch.Tensor] = {}
        self.held = 0

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        fit = min((one for one in self.cached if one.numel() >= size), key=lambda one: one.numel(), default=None)
        if fit is not None:
            self.cached = [one for one in self.cached if one is not fit]
            self.used[fit.data_ptr()] = fit
            return fit[:size]
        room = size + self.alignment
        if self.held + room > self.limit:
            self.held -= sum(self.real(one) for one in self.cached)
            self.cached.clear()
        if self.held + room > self.limit:
            raise MemoryError(size)
        whole = torch.empty(room, dtype=torch.uint8, device=self.device)
        self.held += room
        skip = -whole.data_ptr() % self.alignment
        block = whole[skip : skip + size]
        self.used[block.data_ptr()] = block
        return block

    def real(self, block: torch.Tensor) -> int:
        return block.untyped_storage().nbytes()

    def free(self, block: torch.Tensor, stream: int) -> None:
        self.cached.append(self.used.pop(block.data_ptr()))

    def reserved_bytes(self) -> int:
        return self.held
