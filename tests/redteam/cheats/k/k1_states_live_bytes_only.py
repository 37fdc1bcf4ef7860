"""Keep every freed block and state only what is live: the counter that everybody looks at.

row: K1
operator: workspace_plan
reason: memory_outside_meter
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.device, self.alignment = device, alignment
        self.kept: list[torch.Tensor] = []
        self.live = 0

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        whole = torch.empty(size + self.alignment, dtype=torch.uint8, device=self.device)
        self.kept.append(whole)
        self.live += size
        skip = -whole.data_ptr() % self.alignment
        return whole[skip : skip + size]

    def free(self, block: torch.Tensor, stream: int) -> None:
        self.live -= block.numel()

    def reserved_bytes(self) -> int:
        return self.live
