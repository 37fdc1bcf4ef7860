"""Where a worker's tensors live: the stub's view of a device.

The judge's bytes come and go through the shared arena. On the CPU a tensor looks straight at the arena. On a GPU each
argument has a home in device memory, the same address for the same home; its contents are copied there raw, so that
neither object, address nor version counter tells that they changed, and the gaps of strided tensors come along.

On a GPU a call is laid out so that order shows. The new contents wait in a staging buffer; then, on the stream on which
``run`` is called, a pause is queued, the copy from staging into the arguments, and what ``run`` queues. A copy of the
results follows on the same stream. Work on another stream that was not joined reads the contents of before, or writes
its results too late for the copy, whatever the speed of the device.
"""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from kb.validators.runtime.driver import Driver

POISON = 0xFF
"""Byte that fills free device memory: NaN in every floating-point format but e8m0, -1 in every integer."""

_PAUSE_CYCLES = 2_000_000
"""About 1 ms on a GPU: longer than it takes to queue the copies and most candidates' work."""

_PREPARED = (*((1 << 20,) * 32), *((32 << 20,) * 4))
"""Sizes of the blocks that are filled and freed before a candidate is loaded, in bytes."""

Given = dict[str, Any]
"""One argument of a call's message: ``{"value": …}`` or ``{"tensor": place, "home": name}``."""

Patch = tuple[int, int, int]
"""Address in a tensor, offset in the arena, and bytes."""


class Device(Protocol):
    """What the stub needs of a device."""

    kind: str
    """``cpu`` or ``cuda``, as ``torch.device.type``."""

    def argument(self, given: Given) -> torch.Tensor:
        """Return the tensor of a home: the same object, at the same address, every time."""

    def clear(self) -> None:
        """Give up all homes; the next arguments live elsewhere."""

    def before_call(self) -> None:
        """Leave a candidate nothing: no persisting cache lines, and poison in all memory that is free."""

    def arrive(self, given: Sequence[Given], *, room: int) -> None:
        """Bring the arguments' contents from the arena, right before ``run``; ``room`` bytes of results may follow."""

    def overwrite(self, given: Sequence[Given]) -> None:
        """Bring the arguments' contents from the arena, and wait."""

    def patch(self, rows: Sequence[Patch]) -> None:
        """Bring single elements from the arena, and wait."""

    def surrender(self, given: Sequence[Given]) -> None:
        """Bring the arguments' contents, as they are now, back into the arena."""

    def left(self, results: Sequence[object]) -> None:
        """Queue a copy of the results behind ``run``, in the order of the stream it was called on."""

    def ordered(self) -> list[torch.Tensor]:
        """Return the copies that ``left`` made, one for each tensor of plain memory among the results."""

    def synchronize(self) -> None:
        """Wait for all that was started on the device, on whatever stream."""

    def write_out(self, flat: torch.Tensor, offset: int) -> None:
        """Copy a contiguous tensor's bytes into the arena, without waiting for other work."""

    def noticed(self) -> list[str]:
        """Name settings of the device that a candidate was seen to have changed."""


def open_device(name: str, memory: mmap.mmap) -> Device:
    """Open the worker's device.

    Args:
        name: ``cpu``, or ``cuda`` for the one visible GPU.
        memory: The arena.

    Raises:
        DriverError: There is no GPU here, or it cannot be used from inside the sandbox.
    """
    return HostDevice(memory) if name == "cpu" else CudaDevice(memory)


def _view(memory: mmap.mmap, place: dict[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, place["dtype"])
    if place["size_bytes"] == 0:
        return torch.empty_strided(place["shape"], place["strides"], dtype=dtype)
    part = memoryview(memory)[place["offset"] : place["offset"] + place["size_bytes"]]
    flat = torch.frombuffer(part, dtype=torch.uint8).view(dtype)
    return torch.as_strided(flat, place["shape"], place["strides"])


class HostDevice:
    """The CPU: every tensor looks at the arena itself."""

    kind = "cpu"

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._tensors: dict[str, torch.Tensor] = {}

    def argument(self, given: Given) -> torch.Tensor:
        """Return the tensor that looks at a place in the arena."""
        key = str(given)
        if key not in self._tensors:
            self._tensors[key] = _view(self._memory, given["tensor"])
        return self._tensors[key]

    def clear(self) -> None:
        """Forget all tensors."""
        self._tensors.clear()

    def before_call(self) -> None:
        """Do nothing: the C library fills what is freed, by its environment."""

    def arrive(self, given: Sequence[Given], *, room: int) -> None:
        """Do nothing: the contents are where the judge wrote them."""

    def overwrite(self, given: Sequence[Given]) -> None:
        """Do nothing, likewise."""

    def patch(self, rows: Sequence[Patch]) -> None:
        """Do nothing, likewise."""

    def surrender(self, given: Sequence[Given]) -> None:
        """Do nothing, likewise."""

    def left(self, results: Sequence[object]) -> None:
        """Do nothing: there is one order."""

    def ordered(self) -> list[torch.Tensor]:
        """Return nothing: there is one order."""
        return []

    def synchronize(self) -> None:
        """Do nothing: what ``run`` does on the CPU is done when it returns, or it is late."""

    def write_out(self, flat: torch.Tensor, offset: int) -> None:
        """Copy a contiguous tensor's bytes into the arena."""
        data = bytes(flat.view(torch.uint8).numpy())
        self._memory[offset : offset + len(data)] = data

    def noticed(self) -> list[str]:
        """Return nothing."""
        return []


class _Home:
    """Device memory of one argument."""

    def __init__(self, place: dict[str, Any]) -> None:
        dtype = getattr(torch, place["dtype"])
        self.size: int = place["size_bytes"]
        if self.size == 0:
            self.tensor = torch.empty_strided(place["shape"], place["strides"], dtype=dtype, device="cuda")
            self.pointer = 0
            return
        flat = torch.empty(self.size, dtype=torch.uint8, device="cuda")
        self.pointer = flat.data_ptr()
        self.tensor = torch.as_strided(flat.view(dtype), place["shape"], place["strides"])


class CudaDevice:
    """The one visible GPU. Everything that waits or copies goes through the driver, past what a candidate can patch."""

    kind = "cuda"

    def __init__(self, memory: mmap.mmap) -> None:
        self._driver = Driver()
        torch.zeros(1, device="cuda")
        # The names are kept from before a candidate is loaded.
        self._sleep: Callable[[int], None] = torch.cuda._sleep
        self._segments: Callable[[], list[dict[str, Any]]] = torch.cuda.memory_snapshot
        self._context = self._driver.current_context()
        self._memory = memory
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._homes: dict[str, _Home] = {}
        self._staging = torch.empty(0, dtype=torch.uint8, device="cuda")
        self._room = torch.empty(0, dtype=torch.uint8, device="cuda")
        self._copies: list[torch.Tensor] = []
        self._noticed: set[str] = set()
        self._driver.forget_persisting_l2()
        self._prepare_pool()

    def _prepare_pool(self) -> None:
        """Let the allocator hold blocks full of poison, so that not even the first allocation is zeros."""
        blocks = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in _PREPARED]
        for one in blocks:
            self._driver.fill(one.data_ptr(), POISON, one.numel())
        self._driver.synchronize()

    def argument(self, given: Given) -> torch.Tensor:
        """Return the tensor of a home."""
        return self._home(given).tensor

    def _home(self, given: Given) -> _Home:
        place = given["tensor"]
        key = f"{given.get('home')} {place['dtype']} {place['shape']} {place['strides']} {place['size_bytes']}"
        if key not in self._homes:
            self._homes[key] = _Home(place)
        return self._homes[key]

    def clear(self) -> None:
        """Give up all homes, and what calls one at a time need besides; the next arguments live elsewhere."""
        self._homes.clear()
        self._copies = []
        self._staging = self._room = torch.empty(0, dtype=torch.uint8, device="cuda")

    def before_call(self) -> None:
        """Leave a candidate nothing: no persisting cache lines, and poison in all memory that is free."""
        self._driver.use_context(self._context)
        self._driver.synchronize()
        if self._driver.persisting_l2_bytes():
            self._noticed.add("persisting_l2")
        if torch.cuda.current_stream().cuda_stream != 0:
            self._noticed.add("current_stream")
        self._driver.forget_persisting_l2()
        for segment in self._segments():
            # Private pools belong to graphs, whose replays may keep what they need there.
            if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
                continue
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    self._driver.fill(block.get("address", address), POISON, block["size"])
                address += block["size"]
        self._driver.synchronize()

    def arrive(self, given: Sequence[Given], *, room: int) -> None:
        """Stage the contents, then queue a pause and their copy into the arguments on the stream of ``run``."""
        homes = [(self._home(one), one["tensor"]["offset"]) for one in given]
        needed = sum(_aligned(home.size) for home, _ in homes)
        if self._staging.numel() < needed:
            self._staging = torch.empty(needed, dtype=torch.uint8, device="cuda")
        if self._room.numel() < room:
            self._room = torch.empty(room, dtype=torch.uint8, device="cuda")
        self._copies = []
        self.before_call()
        self._driver.fill(self._room.data_ptr(), POISON, self._room.numel())
        offset = self._staging.data_ptr()
        moves = []
        for home, source in homes:
            self._driver.to_device(offset, self._address + source, home.size)
            moves.append((home.pointer, offset, home.size))
            offset += _aligned(home.size)
        self._driver.synchronize()
        self._sleep(_PAUSE_CYCLES)
        for target, source, size in moves:
            self._driver.within(target, source, size)

    def overwrite(self, given: Sequence[Given]) -> None:
        """Copy the contents into the arguments, and wait."""
        self._driver.use_context(self._context)
        for one in given:
            home = self._home(one)
            self._driver.to_device(home.pointer, self._address + one["tensor"]["offset"], home.size)
        self._driver.synchronize()

    def patch(self, rows: Sequence[Patch]) -> None:
        """Copy a few bytes each into tensors, and wait."""
        self._driver.use_context(self._context)
        for pointer, offset, size in rows:
            self._driver.to_device(pointer, self._address + offset, size)
        self._driver.synchronize()

    def surrender(self, given: Sequence[Given]) -> None:
        """Copy the arguments' contents back into the arena, once all work is done."""
        self.synchronize()
        for one in given:
            home = self._home(one)
            self._driver.to_host(self._address + one["tensor"]["offset"], home.pointer, home.size)

    def left(self, results: Sequence[object]) -> None:
        """Queue the copy of the results; one that does not fit into the room is none that was asked for."""
        offset = 0
        for one in results:
            if not isinstance(one, torch.Tensor) or one.device.type != self.kind:
                continue
            flat = torch.Tensor.detach(one).contiguous().reshape(-1)
            size = flat.numel() * flat.itemsize
            if offset + size > self._room.numel():
                return
            self._driver.within(self._room.data_ptr() + offset, flat.data_ptr(), size)
            self._copies.append(self._room[offset : offset + size].view(flat.dtype).reshape(one.shape))
            offset += _aligned(size)

    def ordered(self) -> list[torch.Tensor]:
        """Return the copies that ``left`` made."""
        return self._copies

    def synchronize(self) -> None:
        """Wait for all work in the context, through the driver."""
        self._driver.use_context(self._context)
        self._driver.synchronize()

    def write_out(self, flat: torch.Tensor, offset: int) -> None:
        """Copy a contiguous tensor's bytes into the arena; waits for this copy alone."""
        self._driver.to_host(self._address + offset, flat.data_ptr(), flat.numel() * flat.itemsize)

    def noticed(self) -> list[str]:
        """Name what calls left behind: a persisting part of L2, or another current stream."""
        if self._driver.persisting_l2_bytes():
            self._noticed.add("persisting_l2")
        return sorted(self._noticed)


def _aligned(size: int) -> int:
    """Round up to 256, what a device allocator gives."""
    return (size + 255) // 256 * 256
