"""The floor: what a device's peaks allow at best for given work."""

from __future__ import annotations

from kb.hardware import Device, DeviceScope
from kb.prediction.values import Work
from kb.values import Frozen

_RATES = {
    "bfloat16": ("tflops.bf16",),
    "float16": ("tflops.fp16",),
    "float32": ("tflops.tf32", "tflops.bf16"),
    "float8_e4m3fn": ("tflops.fp8",),
    "float8_e5m2": ("tflops.fp8",),
    "int8": ("tflops.int8",),
    "nvfp4": ("tflops.fp4",),
    "mxfp4": ("tflops.fp4",),
}
"""dtype to figures of the hardware table. Where a device has no unit for a format, it is computed in bfloat16."""


class Floor(Frozen):
    """The least time of given work on a device, and what bounds it."""

    us: float
    memory_us: float
    compute_us: float
    bound: str
    """``memory`` or ``compute``."""


def floor_of(work: Work, device: Device) -> Floor | None:
    """Return the floor of some work on one device; None where the table lacks a peak that it takes.

    Args:
        work: Operations and bytes, both at least 0 and finite.
        device: A row of the hardware table.
    """
    memory = device.value("mem_gbps")
    rate = _rate(work.dtype, device)
    if memory is None or (rate is None and work.flops > 0):
        return None
    memory_us = work.moved_bytes / (memory * 1e3)
    compute_us = 0.0 if rate is None else work.flops / (rate * 1e6)
    bound = "memory" if memory_us >= compute_us else "compute"
    return Floor(max(memory_us, compute_us), memory_us, compute_us, bound)


def _rate(dtype: str, device: Device) -> float | None:
    for key in (*_RATES.get(dtype, ()), "tflops.bf16", "tflops.fp16"):
        value = device.value(key)
        if value is not None:
            return value
    return None


def slowest(scope: DeviceScope) -> Device | None:
    """Return the member of a family with the least memory bandwidth: a family is as fast as that; None if unknown."""
    known = [(value, member.name, member) for member in scope.members if (value := member.value("mem_gbps"))]
    return min(known, key=lambda one: one[:2])[2] if known else None
