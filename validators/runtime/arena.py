"""The shared memory through which tensors reach a worker and results come back.

The judge writes inputs straight into memory that the worker's tensors already look at: contents change while object,
address and version counter stay as they were. What a worker does to its inputs is read from the same memory, so no
answer of the worker is needed to see it. The region is sealed: it cannot be shrunk under the judge's feet.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ALIGN = 256
"""Alignment of every tensor, in bytes; what a device allocator gives."""

_F_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW, _SEAL_SEAL = 1033, 2, 4, 1


@dataclass(frozen=True)
class Placed:
    """One tensor in the arena: a strided view of its storage."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int
    """In bytes from the start of the arena."""
    size_bytes: int
    """Bytes of storage that the view spans."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def span_bytes(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Return how many bytes of storage a strided view spans; 0 if it has no elements."""
    if any(size == 0 for size in shape):
        return 0
    return (sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1) * itemsize


def aligned(offset: int) -> int:
    """Round up to ``ALIGN``."""
    return (offset + ALIGN - 1) // ALIGN * ALIGN


class Arena:
    """The judge's side: owns the memory."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = max(aligned(size_bytes), ALIGN)
        self.descriptor = os.memfd_create("kb-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size_bytes)
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
        self.memory = mmap.mmap(self.descriptor, self.size_bytes)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put bytes at an offset."""
        self.memory[offset : offset + len(data)] = bytes(data) if isinstance(data, memoryview) else data

    def read(self, offset: int, size: int) -> bytes:
        """Copy bytes out; what the worker does to them afterwards is of no consequence.

        Raises:
            ValueError: The range is not inside the arena.
        """
        if offset < 0 or size < 0 or offset + size > self.size_bytes:
            raise ValueError("outside the arena")
        return self.memory[offset : offset + size]

    def close(self) -> None:
        """Give the memory back."""
        self.memory.close()
        os.close(self.descriptor)
