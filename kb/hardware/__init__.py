"""The hardware table: devices, families, architectures, features and peaks, each figure with its source.

The data is in ``devices.json``; this module reads it once, on first use, with the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kb.errors import DeviceUnavailableError
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NO_FIGURES: Mapping[str, Figure] = MappingProxyType({})


class Figure(Frozen):
    """One number of the table."""

    value: float
    source: str
    """Who says so."""
    disputed: bool = False
    """True where public sources disagree."""


class Device(Frozen):
    """One product."""

    name: str
    device_names: tuple[str, ...]
    """What the device reports as its name."""
    vendor: str
    arch: str
    """``sm_90``, ``gfx942`` or ``cpu``."""
    target: str
    """What a compiler is told: ``sm_90a``."""
    features: frozenset[str]
    figures: Mapping[str, Figure] = _NO_FIGURES
    """Keys: ``sms``, ``mem_gb``, ``mem_gbps``, ``l2_mb``, ``smem_kb_block``, ``tflops.bf16`` and so on."""

    def value(self, key: str) -> float | None:
        """Return one figure, or None where it is not known."""
        found = self.figures.get(key)
        return None if found is None else found.value

    @property
    def smem_bytes(self) -> int | None:
        """Shared memory a CTA can have, in bytes."""
        kilobytes = self.value("smem_kb_block")
        return None if kilobytes is None else int(kilobytes * 1024)


class DeviceScope(Frozen):
    """The devices that a name stands for."""

    asked: str
    members: tuple[Device, ...]

    @property
    def label(self) -> str:
        """The asked name, with its members if there are several."""
        if len(self.members) == 1:
            return self.members[0].device_names[0]
        return f"{self.asked} ({', '.join(member.name for member in self.members)})"

    @property
    def device_names(self) -> tuple[str, ...]:
        """All reported names of all members."""
        return tuple(name for member in self.members for name in member.device_names)

    @property
    def arches(self) -> tuple[str, ...]:
        """Architectures of the members, in order, each once."""
        return tuple(dict.fromkeys(member.arch for member in self.members))

    @property
    def features(self) -> frozenset[str]:
        """Features that every member has."""
        return frozenset.intersection(*(member.features for member in self.members))

    @property
    def smem_bytes(self) -> int | None:
        """Shared memory a CTA has on every member, in bytes; None where it is not known."""
        known = [member.smem_bytes for member in self.members if member.smem_bytes is not None]
        return min(known) if known else None

    def figure_range(self, key: str) -> tuple[float, float] | None:
        """Return the smallest and largest known value of a figure among the members, or None."""
        known = [value for member in self.members if (value := member.value(key)) is not None]
        return (min(known), max(known)) if known else None


@cache
def _table() -> dict[str, Any]:
    text = (Path(__file__).parent / "devices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


@cache
def devices() -> tuple[Device, ...]:
    """Return all devices of the table, and the CPU last."""
    table = _table()
    made = []
    for raw in table["devices"]:
        figures = {
            key: Figure(float(one["value"]), table["sources"][one["source"]], one.get("disputed", False))
            for key, one in raw["figures"].items()
        }
        features = frozenset(table["architectures"][raw["arch"]]["features"])
        if "link_gbps_total" in figures and raw["vendor"] == "nvidia":
            features |= {"nvlink"}
        made.append(
            Device(
                name=raw["name"],
                device_names=tuple(raw["device_names"]),
                vendor=raw["vendor"],
                arch=raw["arch"],
                target=raw["target"],
                features=features,
                figures=figures,
            )
        )
    made.append(Device("CPU", ("cpu",), "none", "cpu", "cpu", frozenset()))
    return tuple(made)


@cache
def architectures() -> Mapping[str, frozenset[str]]:
    """Return every known architecture with its features."""
    return {name: frozenset(raw["features"]) for name, raw in _table()["architectures"].items()}


@cache
def equivalents(feature: str) -> tuple[str, ...]:
    """Return the features that do the job of ``feature`` differently, so that a kernel can be ported."""
    return tuple(_table()["equivalents"].get(feature, ()))


def fp8_variant(arch: str) -> str:
    """Return ``fnuz`` where float8 values differ from the OCP formats by a factor of two, else ``ocp``."""
    return str(_table()["architectures"].get(arch, {}).get("fp8", "ocp"))


def _fold(name: str) -> str:
    folded = "".join(character for character in name.lower() if character.isalnum())
    for prefix in ("nvidia", "amd", "instinct", "geforce"):
        folded = folded.removeprefix(prefix)
    return folded


@cache
def _names() -> Mapping[str, DeviceScope]:
    found: dict[str, DeviceScope] = {}
    by_name = {device.name: device for device in devices()}
    for arch in architectures():
        members = tuple(device for device in devices() if device.arch == arch)
        if members:
            found[_fold(arch)] = DeviceScope(arch, members)
    for family, names in _table()["families"].items():
        found[_fold(family)] = DeviceScope(family, tuple(by_name[name] for name in names))
    for device in devices():
        for name in (device.name, *device.device_names):
            found[_fold(name)] = DeviceScope(name, (device,))
    return found


def known_names() -> tuple[str, ...]:
    """Return every name that ``resolve`` takes, as a person would write it."""
    return tuple(dict.fromkeys(scope.asked for scope in _names().values()))


def resolve(name: str) -> DeviceScope:
    """Find the devices that a name stands for.

    Args:
        name: A reported name (``NVIDIA H200``), a product (``B200``), a family (``H100``, ``Hopper``) or an
            architecture (``sm_90``); case, blanks and the maker's name do not matter.

    Returns:
        One device, or all members of the family.

    Raises:
        DeviceUnavailableError: The name is not known; the hint names the nearest.
    """
    folded = _fold(name)
    scope = _names().get(folded) or _names().get(folded.removesuffix("a") if folded.startswith("sm") else folded)
    if scope is not None:
        return DeviceScope(name, scope.members)
    import difflib

    near = difflib.get_close_matches(folded, _names(), n=3, cutoff=0.4)
    shown = ", ".join(dict.fromkeys(_names()[one].asked for one in near)) or ", ".join(known_names())
    raise DeviceUnavailableError(f"no device is called {name!r}", hint=f"known and near: {shown}")


def resolve_arch(arch: str) -> DeviceScope:
    """Find the devices of an architecture.

    Args:
        arch: ``sm_90``, ``sm_90a``, ``gfx942`` or ``cpu``.

    Raises:
        DeviceUnavailableError: The architecture is not in the table; the hint names the known ones.
    """
    plain = arch.strip().lower()
    plain = plain.rstrip("af") if plain.startswith("sm_") else plain
    members = tuple(device for device in devices() if device.arch == plain)
    if not members:
        known = ", ".join(dict.fromkeys(device.arch for device in devices()))
        raise DeviceUnavailableError(f"no architecture is called {arch!r}", hint=f"known: {known}")
    return DeviceScope(arch, members)
