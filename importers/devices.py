"""Device and dtype spellings of the field, as file names and tables have them."""

import re
from functools import lru_cache

from kb import hardware
from kb.errors import DeviceUnavailableError

UNKNOWN = "unknown"
"""Stands where a source names no device."""

# Products that the hardware table has no peaks for; makers' own product pages name the architecture.
_ARCHES: tuple[tuple[str, str], ...] = (
    (r"\bH(20|800|100|200)\b|\bGH200\b", "sm_90"),
    (r"\bA(100|800|30)\b", "sm_80"),
    (r"\bA(10|10G|40|2|16|6000)\b|\bRTX 30[0-9]0\b", "sm_86"),
    (r"\bL(4|20|40|40S)\b|RTX 40[0-9]0|\bRTX [0-9]+ Ada\b", "sm_89"),
    (r"\bG?B(100|200)\b", "sm_100"),
    (r"\bG?B300\b", "sm_103"),
    (r"\bGB10\b", "sm_121"),
    (r"RTX 50[0-9]0|RTX PRO [0-9]+ Blackwell", "sm_120"),
    (r"\bMI(300[XA]?|308X|325X?)\b", "gfx942"),
    (r"\bMI(350X?|355X?)\b", "gfx950"),
    (r"\bMI2[15]0X?\b", "gfx90a"),
)

_DTYPES: dict[str, tuple[str, ...]] = {
    "fp8_w8a8": ("float8_e4m3fn",), "float8": ("float8_e4m3fn",), "fp8": ("float8_e4m3fn",),
    "fp8_e4m3": ("float8_e4m3fn",), "fp8_block": ("float8_e4m3fn",), "fp8_w8a16": ("float8_e4m3fn",),
    "fp8_w8a8_channelwise": ("float8_e4m3fn",), "fp8_static": ("float8_e4m3fn",), "fp8_ootb": ("float8_e4m3fn",),
    "int8_w8a8": ("int8",), "int8_w8a16": ("int8",), "int8": ("int8",), "int8_wo": ("int8",), "int4_w4a16": ("int4",),
    "int4": ("int4",), "int4_wo": ("int4",), "bf16": ("bfloat16",), "bfloat16": ("bfloat16",), "half": ("float16",),
    "fp16": ("float16",), "float16": ("float16",), "float32": ("float32",), "float": ("float32",), "fp32": ("float32",),
    "nvfp4": ("nvfp4",), "mxfp4": ("mxfp4",), "w4a16_mxfp4": ("mxfp4", "bfloat16"), "w4afp8": ("int4", "float8_e4m3fn"),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "mxfp8"), "w4a8_nvfp4_fp8": ("nvfp4", "float8_e4m3fn"), "mxfp8": ("mxfp8",),
    "fp4": ("nvfp4",), "fp8_fp4": ("mxfp4", "mxfp8"), "int64": ("int64",), "int32": ("int32",),
    "w8a8": ("int8",), "a8w8": ("float8_e4m3fn",), "a16w16": ("float16", "bfloat16"), "afp4wfp4": ("mxfp4",),
}  # fmt: skip


@lru_cache(maxsize=4096)
def device_name(spelling: str) -> str:
    """Return a device's name as the device reports it: underscores stand for blanks in file names.

    Args:
        spelling: ``NVIDIA_H100_80GB_HBM3``, ``Intel(R)_Arc(TM)_Pro_B70_Graphics``; empty where none is named.
    """
    return " ".join(spelling.replace("_", " ").split()) or UNKNOWN


@lru_cache(maxsize=4096)
def arch_of(name: str) -> str | None:
    """Return the architecture of a device, or None where it is not known for sure.

    Args:
        name: As :func:`device_name` gives it, or an architecture's own name.
    """
    if re.fullmatch(r"gfx[0-9a-f]{3,4}|sm_\d{2,3}", name):
        return name
    try:
        arches = hardware.resolve(name).arches
        return arches[0] if len(arches) == 1 else None
    except DeviceUnavailableError:
        pass
    found = {arch for pattern, arch in _ARCHES if re.search(pattern, name)}
    return found.pop() if len(found) == 1 else None


def short_device(name: str) -> str:
    """Return the part of a device's name that a person would say: ``H100``, ``MI300X``, ``RTX PRO 6000``."""
    plain = re.sub(r"\((R|TM)\)", "", name)
    plain = re.sub(
        r"(?i)^(nvidia|amd instinct|amd|intel)\s+|\s*(geforce|instinct|graphics)\s*|-SXM\d-\S+|\s*\d+GB HBM\S*",
        " ",
        plain,
    )
    return " ".join(plain.split()) or name


@lru_cache(maxsize=4096)
def dtypes_of(spelling: str, arch: str | None = None) -> tuple[str, ...]:
    """Return the dtypes that a spelling stands for; empty where nobody can tell.

    Args:
        spelling: ``fp8_w8a8``, ``torch.bfloat16``, ``float8_e4m3fn``.
        arch: On gfx942, fp8 means the ``fnuz`` formats.
    """
    from kb.models.vocabulary import DTYPES

    plain = spelling.strip().lower().removeprefix("torch.")
    found = (plain,) if plain in DTYPES else _DTYPES.get(plain, ())
    if arch is not None and hardware.fp8_variant(arch) == "fnuz":
        return tuple("float8_e4m3fnuz" if one == "float8_e4m3fn" else one for one in found)
    return found
