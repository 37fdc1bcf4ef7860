"""Take a reserve before anybody counts, and state what was taken since.

row: K3
operator: workspace_plan
reason: memory_outside_meter
"""

# mypy: ignore-errors

import torch


class DeviceAllocator:
    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        self.reserve = torch.ones(200 << 20, dtype=torch.uint8, device=device)
        self.device, self.alignment, self.live = device, alignment, 0

    def alloc(self, size: int, stream: int) -> torch.Tensor:
        whole = torch.empty(size + self.alignment, dtype=torch.uint8, device=self.device)
        self.live += size + self.alignment
        skip = -whole.data_ptr() % self.alignment
        return whole[skip : skip + size]

    def free(self, block: torch.Tensor, stream: int) -> None:
        self.live -= block.numel() + self.alignment

    def reserved_bytes(self) -> int:
        return self.live
