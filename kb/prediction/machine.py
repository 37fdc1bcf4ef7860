"""A device as a prediction sees it: peaks, cache, clock; and how near two devices are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from kb import hardware
from kb.hardware import Device
from kb.prediction.values import GENERATIONS, OTHER_MEMORY, SAME_DEVICE, SIBLING, Work
from kb.values import Frozen

_RATES = {
    "bfloat16": ("tflops.bf16",),
    "float16": ("tflops.fp16",),
    "float32": ("tflops.tf32",),
    "float8_e4m3fn": ("tflops.fp8",),
    "float8_e5m2": ("tflops.fp8",),
    "int8": ("tflops.int8",),
    "nvfp4": ("tflops.fp4",),
    "mxfp4": ("tflops.fp4",),
}
"""dtype to figures of the hardware table. A format that a device has no unit for is computed in 16 bits there."""

_WIDE = ("tflops.bf16", "tflops.fp16")

_CLOCK_MHZ = {
    "sm_80": 1410.0, "sm_86": 1740.0, "sm_89": 2520.0, "sm_90": 1980.0, "sm_100": 1965.0, "sm_103": 1965.0,
    "sm_120": 2430.0, "gfx942": 2100.0, "gfx950": 2400.0,
}  # fmt: skip
"""Highest boost clock that the makers publish for a data-centre part of the architecture; rounded."""

_POWER_W_PER_SM_GHZ = 2.6
"""Power that an SM takes for each GHz under full load, from the A100's published figures. Power goes with the cube of
the clock (voltage follows it), so a device with less of it holds less than its boost clock, as its cube root."""

_INLINE_ECC = 1 / 16
"""Share of the bandwidth that error correction takes where its bits lie in the same memory (GDDR); HBM has its own."""
_GDDR = frozenset({"sm_86", "sm_89", "sm_120"})

_SAME_COMPUTE = 1.15
_SAME_MEMORY = 1.1


class Machine(Frozen):
    """Peaks of one device."""

    name: str
    reported: str
    """The first name that the device reports."""
    arch: str
    mem_gbps: float
    l2_bytes: float
    sms: float
    clock_mhz: float
    rates: Mapping[str, float]
    """dtype to 10¹² operations a second."""
    held_clock: float = 1.0
    """Share of the boost clock that the power limit lets it hold under full load; no floor counts on it."""
    held_memory: float = 1.0
    """Share of the bandwidth that is left beside error correction; no floor counts on it."""
    smem_kb: float | None = None
    """Shared memory of one SM; None where it is not known."""

    def compute_us(self, work: Work) -> float:
        """Return the least time of the arithmetic, µs."""
        return work.flops / (self.rates.get(work.dtype, self.rates["bfloat16"]) * 1e6)

    def memory_us(self, work: Work) -> float:
        """Return the least time of the traffic with device memory, µs."""
        return work.moved_bytes / (self.mem_gbps * 1e3)

    def floor_us(self, work: Work) -> float:
        """Return the least time of a call whose data lies in device memory, µs."""
        return max(self.memory_us(work), self.compute_us(work))

    def bound(self, work: Work) -> str:
        """Return which of the two it is: ``memory`` or ``compute``."""
        return "memory" if self.memory_us(work) >= self.compute_us(work) else "compute"


@cache
def machine_of(name: str) -> Machine | None:
    """Return the peaks of a device, or of the slowest member of a family; None where a peak is not known.

    Args:
        name: As :func:`kb.hardware.resolve` takes it.

    Raises:
        DeviceUnavailableError: No device is called so.
    """
    made = [one for member in hardware.resolve(name).members if (one := _machine(member)) is not None]
    return min(made, key=lambda one: (one.mem_gbps, one.name)) if made else None


def _machine(device: Device) -> Machine | None:
    memory = device.value("mem_gbps")
    wide = next((value for key in _WIDE if (value := device.value(key)) is not None), None)
    if memory is None or wide is None:
        return None
    rates = {}
    for dtype, keys in _RATES.items():
        found = next((value for key in keys if (value := device.value(key)) is not None), None)
        rates[dtype] = found if found is not None else wide
    rates["bfloat16"] = wide
    sms, clock_mhz = _or_kin(device, "sms", 132.0), _CLOCK_MHZ.get(device.arch, 1900.0)
    return Machine(
        name=device.name,
        reported=device.device_names[0],
        arch=device.arch,
        mem_gbps=memory,
        l2_bytes=_or_kin(device, "l2_mb", 50.0) * 2**20,
        sms=sms,
        clock_mhz=clock_mhz,
        rates=rates,
        held_clock=_held_clock(device.value("power_w"), sms * clock_mhz / 1e3),
        held_memory=1 - _INLINE_ECC if device.arch in _GDDR else 1.0,
        smem_kb=_or_kin(device, "smem_kb_sm", 0.0) or None,
    )


def _held_clock(power_w: float | None, sms_ghz: float) -> float:
    if power_w is None:
        return 1.0
    return float(min(1.0, (power_w / (sms_ghz * _POWER_W_PER_SM_GHZ)) ** (1 / 3)))


def _or_kin(device: Device, key: str, otherwise: float) -> float:
    """Return a figure of a device, or of the nearest architecture: GB200 has B200's chip, whose figures are known."""
    own = device.value(key)
    if own is not None:
        return own
    kin = [
        value
        for one in hardware.devices()
        if design_of(one.arch) == design_of(device.arch) and (value := one.value(key))
    ]
    return max(kin) if kin else otherwise


def design_of(arch: str) -> str:
    """Return what an architecture is a variant of: ``sm_10`` for ``sm_100`` and ``sm_103``; else itself."""
    return arch[:-1] if arch.startswith("sm_") and len(arch) > len("sm_90") else arch


def case_of(source: Machine, target: Machine) -> str:
    """Return how far a device is from another: one of ``CASES``, never ``calibrated``."""
    if source.name == target.name:
        return SAME_DEVICE
    compute = abs(math.log(source.rates["bfloat16"] / target.rates["bfloat16"]))
    memory = abs(math.log(source.mem_gbps / target.mem_gbps))
    if design_of(source.arch) != design_of(target.arch) or compute > math.log(_SAME_COMPUTE):
        return GENERATIONS
    return SIBLING if memory <= math.log(_SAME_MEMORY) else OTHER_MEMORY


def room(source: Machine, target: Machine) -> float:
    """Return by how much more shared memory an SM of the target has, as a logarithm; 0 if it has not, or none knows.

    A kernel that had to take small tiles where there is little shared memory may be slow there and nowhere else.
    """
    if source.smem_kb is None or target.smem_kb is None:
        return 0.0
    return max(0.0, math.log(target.smem_kb / source.smem_kb))


def distance(one: Machine, other: Machine) -> float:
    """Return how far two devices are apart: logarithms of the ratios of their bandwidths and 16-bit peaks, added up."""
    memory = abs(math.log(one.mem_gbps / other.mem_gbps))
    return memory + abs(math.log(one.rates["bfloat16"] / other.rates["bfloat16"]))
