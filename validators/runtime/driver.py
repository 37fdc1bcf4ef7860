"""The CUDA driver through ctypes: device-wide synchronisation, raw copies, L2 limits; nothing of a framework.

Functions are resolved when the object is made, before a candidate is loaded, so that replacing what a framework calls
``synchronize`` or ``copy_`` replaces nothing here. Raw copies also leave every version counter of a tensor alone.
"""

import ctypes
from typing import Any

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the stream on which a framework runs what no stream was chosen for."""

_LIMIT_PERSISTING_L2 = 6
_ATTRIBUTES = {"sms": 16, "l2_bytes": 38, "memory_clock_khz": 36, "clock_khz": 13, "bus_bits": 37}
_FUNCTIONS = (
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetUuid_v2",
    "cuDeviceComputeCapability",
    "cuDriverGetVersion",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxSetLimit",
    "cuCtxGetLimit",
    "cuCtxResetPersistingL2Cache",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
)


class DriverError(RuntimeError):
    """The driver refused a call, or there is none."""


class Driver:
    """The functions of ``libcuda`` that judging needs."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
            self._functions: dict[str, Any] = {name: getattr(library, name) for name in _FUNCTIONS}
        except (OSError, AttributeError) as error:
            raise DriverError(f"no CUDA driver: {error}") from error
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: object) -> None:
        code = self._functions[name](*arguments)
        if code != 0:
            raise DriverError(f"{name}: error {code}")

    def current_context(self) -> int:
        """Return the handle of this thread's context; 0 if it has none."""
        found = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(found))
        return found.value or 0

    def use_context(self, context: int) -> None:
        """Make a context this thread's own."""
        self._call("cuCtxSetCurrent", ctypes.c_void_p(context))

    def synchronize(self) -> None:
        """Wait for everything that was started in the context, on whatever stream."""
        self._call("cuCtxSynchronize")

    def to_device(self, pointer: int, host: int, size: int) -> None:
        """Copy ``size`` bytes from a host address to a device address, and wait."""
        if size:
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), ctypes.c_void_p(host), ctypes.c_size_t(size))

    def to_host(self, host: int, pointer: int, size: int) -> None:
        """Copy ``size`` bytes from a device address to a host address, and wait for this copy alone."""
        if size:
            self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(pointer), ctypes.c_size_t(size))

    def within(self, target: int, source: int, size: int) -> None:
        """Queue a copy between device addresses on the legacy stream."""
        if size:
            self._call(
                "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size),
                ctypes.c_void_p(LEGACY_STREAM),
            )  # fmt: skip

    def fill(self, pointer: int, value: int, size: int) -> None:
        """Queue filling ``size`` bytes with one byte value on the legacy stream."""
        if size:
            self._call(
                "cuMemsetD8Async", ctypes.c_uint64(pointer), ctypes.c_ubyte(value), ctypes.c_size_t(size),
                ctypes.c_void_p(LEGACY_STREAM),
            )  # fmt: skip

    def persisting_l2_bytes(self) -> int:
        """Return the part of L2 that is set aside for persisting lines, in bytes."""
        found = ctypes.c_size_t()
        self._call("cuCtxGetLimit", ctypes.byref(found), _LIMIT_PERSISTING_L2)
        return found.value

    def forget_persisting_l2(self) -> None:
        """Set nothing aside for persisting lines, and make those that persist ordinary ones."""
        self._call("cuCtxSetLimit", _LIMIT_PERSISTING_L2, ctypes.c_size_t(0))
        self._call("cuCtxResetPersistingL2Cache")

    def facts(self, index: int) -> dict[str, Any]:
        """Return what the driver says of one device; makes no context.

        Raises:
            DriverError: There is no such device.
        """
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, device)
        uuid = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(uuid), device)
        memory, version = ctypes.c_size_t(), ctypes.c_int()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), device)
        plain = bytes(uuid).hex()
        parts = (plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:])
        found: dict[str, Any] = {
            "name": name.value.decode("utf-8", "replace"),
            "uuid": "GPU-" + "-".join(parts),
            "capability": f"{major.value}.{minor.value}",
            "memory_bytes": memory.value,
            "cuda_driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }
        for key, number in _ATTRIBUTES.items():
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
            found[key] = value.value
        return found

    def count(self) -> int:
        """Return the number of visible devices."""
        found = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(found))
        return found.value
