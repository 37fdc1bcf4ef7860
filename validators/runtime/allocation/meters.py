"""Memory as it is seen from outside: a worker's resident memory, and what is used of a GPU."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from kb.validators.runtime import processes
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.worker import Worker

_PAGE = 1 << 10
_PERIOD_S = 0.005


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


class DeviceMeter:
    """Growth of the device memory that a worker holds, asked of the driver's management library and never of it.

    A thread looks all the time; the caller may look as well. Where the library does not say it by process, nothing else
    may use the device meanwhile.

    Args:
        telemetry: The device.
        pids: Returns the worker's processes.

    Raises:
        JudgeError: The library is not there or does not answer.
    """

    def __init__(self, telemetry: Telemetry, pids: Callable[[], list[int]]) -> None:
        self._telemetry, self._worker = telemetry, pids
        self._pids = frozenset(pids())
        self._base = self._peak = 0
        if telemetry.used_bytes(self._pids) is None:
            raise JudgeError("the GPU does not say how much memory is used", "nvidia-smi; install the NVIDIA driver")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kb-meter", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self.look()

    def _used(self) -> int:
        return self._telemetry.used_bytes(self._pids) or 0

    def start(self) -> None:
        """Take what is used now as zero."""
        self._pids = frozenset(self._worker())
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
