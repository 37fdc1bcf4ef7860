"""Memory as it is seen from outside: a worker's resident memory, and what is used of a GPU."""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

from kb.validators.runtime import processes
from kb.validators.runtime.worker import JudgeError, Worker

_PAGE = 1 << 10
_PERIOD_S = 0.002


def high_water_bytes(pids: list[int]) -> int:
    """Return the most resident memory that processes ever had, as the kernel counted it; 0 where it does not say."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
                if line.startswith("VmHWM"):
                    total += int(line.split()[1]) * _PAGE
    return total


def forget_high_water(pids: list[int]) -> bool:
    """Have the kernel start counting anew; False where it may not be asked."""
    try:
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


class HostMeter:
    """Growth of a worker's resident memory; the kernel's own high-water mark misses no peak between two looks."""

    def __init__(self, worker: Worker) -> None:
        self._pids = worker.pids
        self._base = self._peak = 0
        self._kernel_counts = False

    def start(self) -> None:
        """Take what is there now as zero."""
        pids = self._pids()
        self._kernel_counts = forget_high_water(pids)
        self._base = self._peak = processes.resident_bytes(pids)

    def look(self) -> int:
        """Return the growth now, in bytes."""
        now = processes.resident_bytes(self._pids())
        self._peak = max(self._peak, now)
        return now - self._base

    def peak(self) -> int:
        """Return the largest growth since ``start``, in bytes."""
        self.look()
        if self._kernel_counts:
            self._peak = max(self._peak, high_water_bytes(self._pids()))
        return self._peak - self._base


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class DeviceMeter:
    """Growth of a GPU's used memory, asked of the driver's management library and never of the worker.

    A thread looks all the time; the caller may look as well. Nothing else may use the GPU meanwhile.

    Args:
        index: Number of the GPU on the PCI bus.

    Raises:
        JudgeError: The library is not there or does not answer.
    """

    def __init__(self, index: int) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
            self._handle = ctypes.c_void_p()
            code = self._library.nvmlInit_v2()
            code = code or self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._handle))
        except (OSError, AttributeError) as error:
            raise JudgeError(f"no management library of the GPU: {error}", "install the NVIDIA driver") from error
        if code != 0:
            raise JudgeError(f"the management library of the GPU does not answer: error {code}", "nvidia-smi")
        self._base = self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kb-meter", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self.look()

    def _used(self) -> int:
        found = _Memory()
        if self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(found)) != 0:
            return self._peak
        return int(found.used)

    def start(self) -> None:
        """Take what is used now as zero."""
        self._base = self._peak = self._used()

    def look(self) -> int:
        """Return the growth now, in bytes."""
        now = self._used()
        self._peak = max(self._peak, now)
        return now - self._base

    def peak(self) -> int:
        """Return the largest growth since ``start``, in bytes."""
        self.look()
        return self._peak - self._base

    def close(self) -> None:
        """Stop looking."""
        self._done.set()
        self._thread.join(timeout=5)


Meter = HostMeter | DeviceMeter
Look = Callable[[], int]
