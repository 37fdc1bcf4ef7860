"""How an entry reaches an asked device: a class with its reasons, computed from facts and the hardware table.

The classes, best first. In the first three the entry's own code runs on the device:

- ``exact``: measured there by our judge, or (for tuned parameters) tuned there.
- ``recompile``: written for this architecture; building it there is all that is needed.
- ``retune``: the source is portable but was not written or tuned for this device: choose its parameters anew.
- ``port``: the code does not run there, but everything it needs exists there in another form.
- ``technique``: the device lacks what the code needs; only the idea carries over.
- ``none``: nothing carries over.

A family such as H100 is as able as its weakest member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kb import hardware
from kb.hardware import Device, DeviceScope
from kb.models.facts import EntryFacts, Limit, Transfer
from kb.models.vocabulary import TRANSFER
from kb.values import Frozen

__all__ = ["Asked", "Transfer", "assess", "facts_of", "lacks_unit", "unchecked_limits"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PORTABLE = frozenset({"torch", "python", "none"})
"""Languages whose source names no instruction set."""

_JIT = frozenset({"triton", "helion", "gluon", "tilelang"})
"""Languages compiled on the device from a portable source."""

_INTERPRETED = frozenset({"triton"})
"""Languages that a CPU runs through an interpreter."""

_CODE_KINDS = frozenset({"kernel", "allocation", "comm"})

_MATRIX_UNIT = {
    "float8_e4m3fn": "fp8_mma", "float8_e5m2": "fp8_mma", "nvfp4": "fp4_mma", "mxfp4": "fp4_mma",
    "bfloat16": "bf16_mma",
}  # fmt: skip

_FNUZ = {"float8_e4m3fn": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2fnuz"}


class Asked(Frozen):
    """What is asked of an entry beside the device: one operator row of a target. What is not said is not checked."""

    axes: Mapping[str, int] = MappingProxyType({})
    """Sizes of one call; limits are evaluated at those that are given."""
    dtypes: tuple[str, ...] = ()
    """Of the row; an entry has to take one of them."""
    device_count: int | None = None
    """Devices that work together."""
    toolchain: Mapping[str, str] = MappingProxyType({})
    """Package to version, as installed where it is to run."""


def assess(
    facts: EntryFacts, scope: DeviceScope, *, axes: Mapping[str, int] | None = None, asked: Asked | None = None
) -> Transfer:
    """Say how an entry reaches a device.

    Args:
        facts: What the entry requires and where it was measured.
        scope: The asked device, or the members of a family.
        axes: The asked sizes; limits are evaluated at those that are given.
        asked: Sizes and more; instead of ``axes``.

    Returns:
        The worst class over the members, with its reasons.
    """
    wanted = asked or Asked(axes or {})
    verdicts = [_assess_member(facts, member, wanted) for member in scope.members]
    return max(verdicts, key=lambda verdict: TRANSFER.index(verdict.kind))


def lacks_unit(dtype: str, scope: DeviceScope) -> bool:
    """Tell whether a format is only stored on a device, or on a member of a family, for want of a matrix unit."""
    return dtype in _MATRIX_UNIT and _MATRIX_UNIT[dtype] not in scope.features


def unchecked_limits(facts: EntryFacts, axes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the axes that the entry limits and that nobody stated, sorted: its limits are not proven to hold."""
    return tuple(sorted(axis for axis in facts.limits if axis not in axes))


def _assess_member(facts: EntryFacts, device: Device, asked: Asked) -> Transfer:
    if facts.kind in ("target", "campaign"):
        return _documents(facts, device)
    if facts.devices is not None and asked.device_count is not None and facts.devices > asked.device_count:
        return Transfer("none", (f"needs {facts.devices} devices; the target has {asked.device_count}",))
    if facts.kind in _CODE_KINDS and device.arch in facts.cannot_run_on:
        return Transfer("port", (f"it cannot run on {device.name}: {facts.cannot_run_on[device.arch]}",))
    interpreted = device.arch == "cpu" and facts.language in _INTERPRETED and facts.kind in _CODE_KINDS
    # An interpreter does in software what the units of a GPU do, so nothing is lacking there.
    missing = [] if interpreted else [feature for feature in facts.features if feature not in device.features]
    if missing:
        return _lacking(missing, device)
    if facts.outcome == "infeasible" and not facts.arch:
        return Transfer("technique", ("a negative result: knowledge, not code",))
    broken = _broken_limits(facts.limits, asked.axes) + _unfit(facts, device, asked)
    if broken:
        return Transfer("port" if facts.kind in _CODE_KINDS else "technique", tuple(broken))
    if facts.kind == "technique" or (facts.kind == "combination" and facts.language == "none"):
        return Transfer("technique", ("an idea with evidence; it carries no code of its own",))
    if facts.kind == "config":
        return _tuned(facts, device, asked.axes)
    return _code(facts, device)


def _unfit(facts: EntryFacts, device: Device, asked: Asked) -> list[str]:
    """Say what beside sizes keeps the code from what is asked: formats, memory, packages."""
    found = []
    if asked.dtypes and facts.dtypes and facts.kind != "technique" and not set(asked.dtypes) & set(facts.dtypes):
        found.append(f"takes {', '.join(facts.dtypes)}; here it is {', '.join(asked.dtypes)}")
    memory = device.value("mem_gb")
    if facts.hbm_bytes is not None and memory is not None and facts.hbm_bytes > memory * 2**30:
        # Makers count in either unit; the larger one never says that too little is there where enough is.
        found.append(f"needs {facts.hbm_bytes:,} bytes of device memory; {device.name} has {memory:g} GB")
    for package, wanted in sorted(facts.packages.items()):
        there = asked.toolchain.get(package)
        if there is not None and not _satisfies(there, wanted):
            found.append(f"needs {package} {wanted}; the target has {there}")
    return found


def _satisfies(version: str, specifier: str) -> bool:
    """Tell whether a version meets a specifier; comparisons that are not understood count as met."""
    have = _parts(version)
    for one in specifier.split(","):
        sign = one.strip()[:2] if one.strip()[1:2] == "=" else one.strip()[:1]
        want = _parts(one.strip()[len(sign) :])
        size = max(len(have), len(want))
        left, right = (part + (0,) * (size - len(part)) for part in (have, want))
        met = {">=": left >= right, "<=": left <= right, "==": left == right, "!=": left != right,
               ">": left > right, "<": left < right, "~=": left >= right and left[:1] == right[:1]}  # fmt: skip
        if want and not met.get(sign, True):
            return False
    return True


def _parts(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``2.11.0+cu130`` gives 2, 11, 0."""
    numbers = []
    for part in version.strip().partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _documents(facts: EntryFacts, device: Device) -> Transfer:
    if facts.tuned_device is not None and facts.tuned_device in device.device_names:
        return Transfer("technique", (f"done on {facts.tuned_device}",))
    return Transfer("technique", ("a document: what was learnt carries over, not code",))


def _lacking(missing: Sequence[str], device: Device) -> Transfer:
    reasons = []
    portable = True
    for feature in missing:
        others = [other for other in hardware.equivalents(feature) if other in device.features]
        portable = portable and bool(others)
        instead = f"; {others[0]} does that job there" if others else ""
        reasons.append(f"needs {feature}, which {device.arch} ({device.name}) lacks{instead}")
    return Transfer("port" if portable else "technique", tuple(reasons))


def _broken_limits(limits: Mapping[str, Limit], axes: Mapping[str, int]) -> list[str]:
    found = []
    for axis, limit in limits.items():
        if axis in axes and (violation := limit.violation(axes[axis])):
            found.append(f"{axis} = {axes[axis]} is outside its limits: {violation}")
    return found


def _tuned(facts: EntryFacts, device: Device, axes: Mapping[str, int]) -> Transfer:
    others = [f"{axis} = {size}" for axis, size in facts.tuned_axes.items() if axes.get(axis, size) != size]
    if others:
        here = ", ".join(f"{axis} = {axes[axis]}" for axis in facts.tuned_axes if axis in axes)
        return Transfer("retune", (f"tuned at {', '.join(others)}; here {here}",))
    if facts.tuned_device in device.device_names:
        return Transfer("exact", (f"tuned on {facts.tuned_device}",))
    return Transfer("retune", (f"tuned on {facts.tuned_device}, not on {device.name}",))


def _code(facts: EntryFacts, device: Device) -> Transfer:
    if any(name in facts.measured_on for name in device.device_names):
        return Transfer("exact", (f"measured on {device.name}",))
    if device.arch == "cpu":
        return _on_cpu(facts)
    fnuz = [dtype for dtype in facts.dtypes if dtype in _FNUZ] if hardware.fp8_variant(device.arch) == "fnuz" else []
    if fnuz:
        return Transfer(
            "port", (f"{device.arch} has {_FNUZ[fnuz[0]]}, whose values differ from {fnuz[0]} by a factor of two",)
        )
    if facts.smem_bytes is not None and device.smem_bytes is not None and facts.smem_bytes > device.smem_bytes:
        reason = f"needs {facts.smem_bytes:,} bytes of shared memory a CTA; {device.name} has {device.smem_bytes:,}"
        return Transfer("retune" if facts.language in _JIT else "port", (reason,))
    return _by_architecture(facts, device)


def _by_architecture(facts: EntryFacts, device: Device) -> Transfer:
    note = _storage_note(facts, device)
    if facts.language in _PORTABLE:
        return Transfer("recompile", ("its source names no instruction set", *note))
    if device.arch in facts.arch:
        return Transfer("recompile", (f"written for {device.arch}", *note))
    suffixed = [
        arch for arch in facts.arch if arch[-1] in "af" and arch.rstrip("af") == device.arch and arch == device.target
    ]
    if suffixed:
        return Transfer("recompile", (f"written for {suffixed[0]}", *note))
    written = ", ".join(facts.arch) or "no named architecture"
    if facts.language in _JIT and not any(arch[-1] in "af" for arch in facts.arch if arch.startswith("sm_")):
        return Transfer(
            "retune", (f"portable source written for {written}; its tile sizes are not chosen for {device.arch}", *note)
        )
    return Transfer("port", (f"written for {written}; {device.arch} needs other instructions", *note))


def _on_cpu(facts: EntryFacts) -> Transfer:
    if facts.language in _PORTABLE:
        return Transfer("recompile", ("its source names no instruction set",))
    if facts.language in _INTERPRETED:
        return Transfer("recompile", ("through the Triton interpreter: values only, never speed",))
    return Transfer("port", (f"{facts.language} does not run on a CPU",))


def _storage_note(facts: EntryFacts, device: Device) -> tuple[str, ...]:
    """Say which dtypes are only stored on the device, because it has no matrix unit for them."""
    stored = [
        dtype
        for dtype in facts.dtypes
        if dtype in _MATRIX_UNIT
        and _MATRIX_UNIT[dtype] not in device.features
        and _MATRIX_UNIT[dtype] not in facts.features
    ]
    return (f"{device.arch} has no matrix unit for {', '.join(stored)}: stored so, computed wider",) if stored else ()


def facts_of(entry_id: str, facts: Mapping[str, Any], *, measured_on: Sequence[str] = ()) -> EntryFacts:
    """Read what transfer needs from the plain form of ``entry.toml``.

    Args:
        entry_id: Path below ``entries/``.
        facts: The parsed TOML of a valid entry.
        measured_on: Device names with evidence ``measured`` or better.

    Returns:
        The facts.
    """
    requires: Mapping[str, Any] = facts.get("requires", {})
    limits = {
        axis: Limit(
            min=rule.get("min"),
            max=rule.get("max"),
            multiple_of=rule.get("multiple_of"),
            allowed=tuple(rule["in"]) if rule.get("in") is not None else None,
        )
        for axis, rule in facts.get("limits", {}).items()
    }
    tuned: Mapping[str, Any] = facts.get("tuned") or {}
    target: Mapping[str, Any] = facts.get("target") or {}
    return EntryFacts(
        id=entry_id,
        kind=entry_id.split("/", 1)[0],
        language=facts.get("language", "none"),
        dtypes=tuple(facts.get("dtypes", ())),
        arch=tuple(requires.get("arch", ())),
        features=tuple(requires.get("features", ())),
        smem_bytes=requires.get("smem_bytes"),
        hbm_bytes=requires.get("hbm_bytes"),
        devices=requires.get("devices"),
        limits=limits,
        tuned_device=tuned.get("device") or next(iter(target.get("devices", ())), None),
        measured_on=tuple(measured_on),
        outcome=facts.get("outcome", "works"),
        cannot_run_on=facts.get("cannot_run_on", {}),
        packages=requires.get("packages", {}),
        tuned_axes=tuned.get("axes", {}),
    )
