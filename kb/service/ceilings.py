"""What devices have by their data sheets, in the forms in which the judge's runtime takes it."""

from collections.abc import Mapping
from typing import Any

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.hardware import Device

_RATES = {
    "bfloat16": "tflops.bf16",
    "float16": "tflops.fp16",
    "float8_e4m3fn": "tflops.fp8",
    "float32": "tflops.fp32",
}
_ANY = ("tflops.bf16", "tflops.fp16", "tflops.fp8", "tflops.int8", "tflops.fp4")
"""Rates of one of which a product of 16 bits or less may be made: what it is made of is not in its dtype."""


def claimed(member: Device) -> dict[str, Any]:
    """Return what a device has, as ``peaks.plausible`` takes it: ``mem_gbps``, ``l2_bytes``, ``tflops`` by dtype."""
    cache = member.value("l2_mb")
    return {
        "mem_gbps": member.value("mem_gbps"),
        "l2_bytes": None if cache is None else int(cache * (1 << 20)),
        "tflops": {dtype: value for dtype, key in _RATES.items() if (value := member.value(key)) is not None},
    }


def of_device(name: str) -> Mapping[str, Mapping[str, float]]:
    """Return what no result on a device can exceed, as ``time_candidate`` takes it.

    Args:
        name: As the device reports it.

    Returns:
        dtype to ``mem_gbps`` and ``tflops``; empty where the hardware table does not know the device.
    """
    try:
        members = hardware.resolve(name).members
    except DeviceUnavailableError:
        return {}
    return _of_members(members)


def by_device() -> dict[str, dict[str, dict[str, float]]]:
    """Return the same for every GPU of the table, by reported name: what a bundle carries."""
    found = {}
    for device in hardware.devices():
        for name in device.device_names if device.arch != "cpu" else ():
            found[name] = _of_members((device,))
    return found


def _of_members(members: tuple[Device, ...]) -> dict[str, dict[str, float]]:
    made: dict[str, dict[str, float]] = {}
    memory = [value for one in members if (value := one.value("mem_gbps")) is not None]
    narrow = [value for one in members for key in _ANY if (value := one.value(key)) is not None]
    wide = [value for one in members if (value := one.value("tflops.fp32")) is not None]
    half = [value for one in members if (value := one.value("tflops.bf16")) is not None]
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "uint8"):
        made[dtype] = {"tflops": max(narrow)} if narrow else {}
    # Three products of bfloat16 make up one of float32.
    exact = [*wide, *(one / 3 for one in half)]
    made["float32"] = {"tflops": max(exact)} if exact else {}
    for row in made.values():
        row.update({"mem_gbps": max(memory)} if memory else {})
    return made
