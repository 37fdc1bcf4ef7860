"""Hands out tensors that are larger than what was asked for, because its classes are coarse.

operator: workspace_plan
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.device, self.limit, self.alignment, self.held = device, limit_bytes, alignment, 0

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        room = -(-size // (1 << 18)) * (1 << 18)
        if self.held + room + self.alignment > self.limit:
            raise MemoryError(size)
        whole = torch.empty(room + self.alignment, dtype=torch.uint8, device=self.device)
        self.held += whole.numel()
        skip = -whole.data_ptr() % self.alignment
        return whole[skip : skip + room]

    def free(self, block: torch.Tensor, stream: int) -> None:
        self.held -= block.numel() + self.alignment

    def reserved_bytes(self) -> int:
        return self.held
