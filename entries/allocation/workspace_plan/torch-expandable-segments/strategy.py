"""Real blocks from torch's caching allocator with expandable segments switched on, in a pool of its own.

The form of ``workspace_plan`` with memory of its own. On a GPU what is held is what the allocator has mapped; on a CPU,
where there is nothing to map, each block is an allocation of its own.
"""

import torch


class DeviceAllocator:
    """Blocks are plain tensors; ``reserved_bytes`` is the framework's own count of mapped memory."""

    def __init__(self, device: str, limit_bytes: int, alignment: int) -> None:
        """Switch the setting on for segments that come from now on.

        Args:
            device: ``cpu`` or ``cuda``.
            limit_bytes: No more is held; a block that would need more is refused.
            alignment: Power of two in bytes; the allocator gives 512, larger ones are padded.
        """
        self._device, self._limit, self._alignment = device, limit_bytes, alignment
        self._live = 0
        self._whole: dict[int, torch.Tensor] = {}
        if device == "cuda":
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
            torch.cuda.empty_cache()
            self._base = torch.cuda.memory_reserved()

    def alloc(self, size: int, stream: int = 0) -> torch.Tensor:
        """Return a tensor of at least ``size`` bytes whose address is aligned."""
        room = size + (self._alignment if self._device == "cpu" or self._alignment > 512 else 0)
        if self._live + room > self._limit:
            raise MemoryError(f"{size} bytes beside {self._live}")
        whole = torch.empty(room, dtype=torch.uint8, device=self._device)
        if self.reserved_bytes() + (room if self._device == "cpu" else 0) > self._limit:
            del whole
            if self._device == "cuda":
                torch.cuda.empty_cache()
            raise MemoryError(f"{size} bytes beside {self._live}")
        skip = -whole.data_ptr() % self._alignment
        block = whole[skip : skip + size]
        self._whole[block.data_ptr()] = whole
        self._live += room
        return block

    def free(self, block: torch.Tensor, stream: int = 0) -> None:
        """Drop a block; the allocator keeps its pages mapped for the next one."""
        self._live -= self._whole.pop(block.data_ptr()).numel()

    def reserved_bytes(self) -> int:
        """Return the bytes mapped for this pool, live or cached."""
        return self._live if self._device == "cpu" else torch.cuda.memory_reserved() - self._base
