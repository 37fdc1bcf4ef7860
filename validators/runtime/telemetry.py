"""What a GPU says of itself: clocks, power, heat, throttling, other processes; read through NVML with ctypes.

Only the judge's own process asks, around each block; a candidate is never asked. Where there is no NVML, as on a CPU,
every answer is None.
"""

import contextlib
import ctypes
from typing import Any

_SM, _MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_REASONS = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal",
    0x40: "hardware_thermal",
    0x80: "hardware_power_brake",
    0x100: "display_clocks",
}
"""Bits of NVML's clock event reasons; ``idle`` is not reported as throttling."""


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Telemetry:
    """One GPU as NVML sees it, or nothing at all."""

    def __init__(self, uuid: str | None) -> None:
        """Find the device.

        Args:
            uuid: As the driver reports it (``GPU-…``); None for a CPU.
        """
        self._library: Any = None
        self._handle = ctypes.c_void_p()
        if uuid is None:
            return
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() != 0:
                return
            if library.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"), ctypes.byref(self._handle)) == 0:
                self._library = library

    @property
    def present(self) -> bool:
        """Whether anything can be read."""
        return self._library is not None

    def read(self) -> dict[str, Any] | None:
        """Return the state right now.

        Returns:
            ``sm_mhz``, ``mem_mhz``, ``power_w``, ``temperature_c`` (None where the device does not say), and
            ``throttle``, reasons for which clocks are held down; None where there is no NVML.
        """
        if self._library is None:
            return None
        power = self._number("nvmlDeviceGetPowerUsage")
        return {
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", _SM),
            "mem_mhz": self._number("nvmlDeviceGetClockInfo", _MEMORY),
            "power_w": None if power is None else power / 1000,
            "temperature_c": self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            "throttle": self._throttle(),
        }

    def default_mhz(self) -> float | None:
        """Return the clock that the device would run at unhindered: the application default, else the highest."""
        if self._library is None:
            return None
        found = self._number("nvmlDeviceGetDefaultApplicationsClock", _SM)
        return found if found else self._number("nvmlDeviceGetMaxClockInfo", _SM)

    def others(self, own: frozenset[int]) -> list[int] | None:
        """Return the ids of compute processes on the device that are none of ours; None where that cannot be known.

        Args:
            own: Process ids of the judge's workers, as this host numbers them.
        """
        rows = self._processes()
        return None if rows is None else sorted({row.pid for row in rows} - own)

    def used_bytes(self, own: frozenset[int]) -> int | None:
        """Return the device memory that processes hold; of the whole device where it does not say it by process.

        Args:
            own: Process ids, as this host numbers them.

        Returns:
            Bytes; None where there is no NVML.
        """
        held = [row.memory for row in self._processes() or () if row.pid in own and row.memory < 1 << 60]
        if held:
            return int(sum(held))
        found = _Memory()
        if self._library is None or self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(found)) != 0:
            return None
        return int(found.used)

    def _processes(self) -> list[_Process] | None:
        if self._library is None:
            return None
        count = ctypes.c_uint(128)
        rows = (_Process * 128)()
        with contextlib.suppress(AttributeError):
            call = self._library.nvmlDeviceGetComputeRunningProcesses_v3
            if call(self._handle, ctypes.byref(count), rows) == 0:
                return list(rows[: count.value])
        return None

    def _throttle(self) -> list[str]:
        found = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            with contextlib.suppress(AttributeError):
                if getattr(self._library, name)(self._handle, ctypes.byref(found)) == 0:
                    return [word for bit, word in _REASONS.items() if found.value & bit and word != "idle"]
        return []

    def _number(self, name: str, *arguments: int) -> float | None:
        value = ctypes.c_uint()
        with contextlib.suppress(AttributeError):
            if getattr(self._library, name)(self._handle, *arguments, ctypes.byref(value)) == 0:
                return float(value.value)
        return None


def worst(rows: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the worst of several readings: lowest clocks, most power and heat, every reason; None if there is none."""
    known = [one for one in rows if one is not None]
    if not known:
        return None
    found: dict[str, Any] = {}
    for name, pick in (("sm_mhz", min), ("mem_mhz", min), ("power_w", max), ("temperature_c", max)):
        values = [one[name] for one in known if one[name] is not None]
        found[name] = pick(values) if values else None
    found["throttle"] = sorted({reason for one in known for reason in one["throttle"]})
    return found
