"""Batches of calls, the worker's side: lay out slots, wait for the judge's mark, run, keep every output.

The judge's clock runs outside. What is read here, from the device's events or from this process's own counter, can be
forged by a candidate and is only held against that clock. So that starting a batch costs next to nothing, the judge
sets it off by writing a mark into the shared memory, and this side answers there too.

A batch goes through slots: sets of arguments with contents of their own at addresses of their own, all of them placed
before. Before some calls, and nobody knows before which, the contents of the slot are replaced by those of a spare.
Work that was done ahead, for many slots at once or for contents seen before, is wrong there.
"""

import ctypes
import gc
import mmap
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from kb.validators.runtime.devices import Device, Given
from kb.validators.runtime.driver import DriverError

MARK_BYTES = 8
DONE_AT = 64
"""Bytes after the place of the start mark where the end mark is written."""

Run = Callable[..., object]
Message = dict[str, Any]


class Backend(Protocol):
    """What a batch needs of the device beyond the calls themselves."""

    def start(self) -> None:
        """Note the time, in the order of the device's own work."""

    def stop(self) -> None:
        """Note the time again."""

    def elapsed_us(self) -> float:
        """Return the time between the two notes, once the device is idle."""

    def replace(self, target: torch.Tensor, source: torch.Tensor, size: int) -> None:
        """Copy the storage of a spare's tensor over a slot's, in the order of the device's work."""

    def sweep(self, size: int) -> None:
        """Write so many bytes of other memory, so that nothing of the slots stays in a cache."""

    def touch(self, tensors: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Read tensors, so that they lie in a cache if they fit."""

    def tidy(self) -> None:
        """Give up memory that earlier slots held."""


class HostBackend:
    """The CPU: the judge itself stops the process, writes the contents, and sweeps the shared cache."""

    def __init__(self) -> None:
        self._now, self._copy = time.perf_counter, ctypes.memmove
        self._began = self._ended = 0.0

    def start(self) -> None:
        """Note the time."""
        self._began = self._now()

    def stop(self) -> None:
        """Note the time again."""
        self._ended = self._now()

    def elapsed_us(self) -> float:
        """Return the microseconds between the notes."""
        return (self._ended - self._began) * 1e6

    def replace(self, target: torch.Tensor, source: torch.Tensor, size: int) -> None:
        """Copy bytes."""
        self._copy(target.data_ptr(), source.data_ptr(), size)

    def sweep(self, size: int) -> None:
        """Do nothing: the judge sweeps while this process is stopped."""

    def touch(self, tensors: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Do nothing: the judge has just written them."""

    def tidy(self) -> None:
        """Do nothing."""


class CudaBackend:
    """A GPU through its driver, with functions that were looked up before a candidate was loaded."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        names = ("cuEventCreate", "cuEventRecord", "cuEventElapsedTime_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async")
        fallback = {"cuEventElapsedTime_v2": "cuEventElapsedTime"}
        self._functions = {n: getattr(library, n, None) or getattr(library, fallback.get(n, n)) for n in names}
        self._stream = torch.cuda.current_stream
        self._empty_cache = torch.cuda.empty_cache
        self._events = (ctypes.c_void_p(), ctypes.c_void_p())
        for event in self._events:
            self._call("cuEventCreate", ctypes.byref(event), 0)
        self._other = torch.empty(0, dtype=torch.uint8, device="cuda")
        self._sum, self._total = torch.sum, torch.empty((), dtype=torch.int32, device="cuda")

    def _call(self, name: str, *arguments: object) -> None:
        code = self._functions[name](*arguments)
        if code != 0:
            raise DriverError(f"{name}: error {code}")

    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._stream().cuda_stream)

    def start(self) -> None:
        """Record the first event on the stream that calls are made on."""
        self._call("cuEventRecord", self._events[0], self._handle())

    def stop(self) -> None:
        """Record the second event there."""
        self._call("cuEventRecord", self._events[1], self._handle())

    def elapsed_us(self) -> float:
        """Return the microseconds between the events."""
        found = ctypes.c_float()
        self._call("cuEventElapsedTime_v2", ctypes.byref(found), *self._events)
        return found.value * 1e3

    def replace(self, target: torch.Tensor, source: torch.Tensor, size: int) -> None:
        """Queue a copy on the stream that calls are made on; while a graph is captured, that becomes a node of it."""
        self._copy(target.data_ptr(), source.data_ptr(), size)

    def _copy(self, target: int, source: int, size: int) -> None:
        self._call(
            "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size),
            self._handle(),
        )  # fmt: skip

    def sweep(self, size: int) -> None:
        """Fill other memory, and read it: what a cache holds then need not be written back while a batch is timed."""
        self._room(size)
        self._call(
            "cuMemsetD8Async", ctypes.c_uint64(self._other.data_ptr()), ctypes.c_ubyte(0x5A), ctypes.c_size_t(size),
            self._handle(),
        )  # fmt: skip
        self._sum(self._other, 0, dtype=torch.int32, out=self._total)

    def touch(self, tensors: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Copy each tensor into other memory, always the same, which reads it through the cache."""
        self._room(max((size for _, size in tensors), default=0))
        for tensor, size in tensors:
            if size:
                self._copy(self._other.data_ptr(), tensor.data_ptr(), size)

    def _room(self, size: int) -> None:
        if self._other.numel() < size:
            self._other = torch.empty(size, dtype=torch.uint8, device="cuda")

    def tidy(self) -> None:
        """Return the allocator's free blocks to the device, and what was swept."""
        self._other = torch.empty(0, dtype=torch.uint8, device="cuda")
        self._empty_cache()


class Batches:
    """The slots of one workload, and what the last batch left."""

    def __init__(self, memory: mmap.mmap, device: Device) -> None:
        self._memory, self._device = memory, device
        self._backend: Backend = HostBackend() if device.kind == "cpu" else CudaBackend()
        self._collect, self._pause, self._resume = gc.collect, gc.disable, gc.enable
        self._graph_class = torch.cuda.CUDAGraph if device.kind == "cuda" else None
        self._capture = torch.cuda.graph if device.kind == "cuda" else None
        self._slots: list[list[Any]] = []
        self._moving: list[list[tuple[torch.Tensor, int]]] = []
        self._spares: list[list[tuple[torch.Tensor, int]]] = []
        self._lasting: list[list[tuple[torch.Tensor, int]]] = []
        self._sources: list[tuple[int, int]] = []
        self._graph: Any = None
        self._captured: list[object] = []
        self.kept: list[object] = []

    def lay(self, message: Message) -> Message:
        """Take slots and spares; with ``clear``, in place of those from before.

        Args:
            message: ``slots``, each a list of arguments in the order of ``run``; ``moving``, indices of the arguments
                that get new contents; ``spares``, each a list of tensors for these; ``sources``, rows of a slot and
                the slot that it is a copy of, see ``derive``.
        """
        if message.get("clear"):
            self._graph, self._captured, self.kept = None, [], []
            self._slots, self._moving, self._spares = [], [], []
            self._lasting, self._sources = [], []
            self._device.clear()
            self._collect()
            self._backend.tidy()
        for given in message["slots"]:
            self._slots.append([one["value"] if "value" in one else self._device.argument(one) for one in given])
            self._moving.append([self._tensor(given[index]) for index in message["moving"]])
            rest = [i for i, one in enumerate(given) if "tensor" in one and i not in message["moving"]]
            self._lasting.append([self._tensor(given[index]) for index in rest])
        self._sources += [(int(slot), int(source)) for slot, source in message.get("sources", ())]
        self._spares += [[self._tensor(one) for one in given] for given in message["spares"]]
        return {"slots": len(self._slots), "spares": len(self._spares)}

    def derive(self, message: Message) -> Message:
        """Copy slots to those that are copies of them.

        Args:
            message: ``lasting``, whether the arguments that do not change are copied, or those that do.
        """
        rows = self._lasting if message["lasting"] else self._moving
        for slot, source in self._sources:
            for (target, size), (origin, _) in zip(rows[slot], rows[source], strict=True):
                if size:
                    self._backend.replace(target, origin, size)
        self._device.synchronize()
        return {"derived": len(self._sources)}

    def edit(self, message: Message) -> Message:
        """Change single elements of slots.

        Args:
            message: ``rows`` of a slot, a number among its arguments that get new contents, where the element begins
                there in bytes, how many it has, and where they lie in the shared memory.
        """
        rows = []
        for slot, which, at, size, offset in message["rows"]:
            tensor, whole = self._moving[slot][which]
            if not 0 <= at <= at + size <= whole:
                raise ValueError("an element beyond the end of its tensor")
            rows.append((tensor.data_ptr() + at, offset, size))
        self._device.patch(rows)
        return {"edited": len(rows)}

    def _tensor(self, given: Given) -> tuple[torch.Tensor, int]:
        return self._device.argument(given), int(given["tensor"]["size_bytes"])

    def capture(self, run: Run, message: Message) -> Message:
        """Record one graph of all calls of a batch; replays read what lies in the slots then."""
        self._graph, self._captured, self.kept = None, [], []
        self._device.synchronize()
        if self._graph_class is None or self._capture is None:
            raise RuntimeError("graphs need a GPU")
        graph = self._graph_class()
        with self._capture(graph):
            captured = self._calls(run, message["order"], _swaps(message))
        self._graph, self._captured = graph, captured
        self._device.synchronize()
        return {"captured": len(captured)}

    def batch(self, run: Run, message: Message, announce: Callable[[], None]) -> Message:
        """Make one batch of calls.

        Args:
            run: The candidate's function.
            message: ``order``, slots in the order of the calls; ``swaps``, rows of position, slot and spare;
                ``launch``; ``sweep``, bytes; ``touch``; ``go``, place of the marks in the shared memory; ``mark``, in
                hexadecimal.
            announce: Tells the judge that only its mark is missing.

        Returns:
            ``device_us`` of the whole batch by the worker's own clock.
        """
        mark, place, swaps = bytes.fromhex(message["mark"]), message["go"], _swaps(message)
        replay = message["launch"] == "graph"
        self._ready(message, replay=replay)
        memory, order, end = self._memory, message["order"], message["go"] + DONE_AT
        announce()
        while memory[place : place + MARK_BYTES] != mark:
            pass
        self._backend.start()
        if replay:
            self._graph.replay()
            self.kept = self._captured
        else:
            self.kept = self._calls(run, order, swaps)
        self._backend.stop()
        self._device.synchronize()
        memory[end : end + MARK_BYTES] = mark
        self._resume()
        return {"device_us": self._backend.elapsed_us() if order else 0.0}

    def _ready(self, message: Message, *, replay: bool) -> None:
        """Drop the last outputs, fill free memory, and bring the caches into the state that was asked for."""
        self.kept = []
        if replay and self._graph is None:
            raise RuntimeError("no graph was captured")
        self._pause()
        self._device.before_call()
        if message.get("sweep"):
            self._backend.sweep(message["sweep"])
        if message.get("touch"):
            self._backend.touch([one for given in self._moving for one in given])
        self._device.synchronize()

    def _calls(self, run: Run, order: Sequence[int], swaps: dict[int, tuple[int, int]]) -> list[object]:
        slots, kept = self._slots, []
        for at, slot in enumerate(order):
            if at in swaps:
                self._swap(*swaps[at])
            kept.append(run(*slots[slot]))
        return kept

    def _swap(self, slot: int, spare: int) -> None:
        for (target, size), (source, _) in zip(self._moving[slot], self._spares[spare], strict=True):
            if size:
                self._backend.replace(target, source, size)


def _swaps(message: Message) -> dict[int, tuple[int, int]]:
    return {at: (slot, spare) for at, slot, spare in message["swaps"]}
