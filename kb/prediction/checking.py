"""The roofline check: measurements that no prediction is made from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kb.prediction.machine import Machine
from kb.prediction.values import Flagged, Sample

_SLACK = 0.98
"""Peaks are rounded figures: a time a little below them is no fault."""

_HOST_US = 60.0
"""A kernel that does next to nothing ends far sooner on every device of the table."""

_LITTLE_US = 8.0
"""Work whose floor is below this is little."""

_LEAST = 3
"""As many measurements of little work make a plateau."""


def check(samples: Sequence[Sample], machine: Machine) -> tuple[list[Sample], list[Flagged]]:
    """Separate the measurements of one kernel on one device that can be used from those that cannot.

    Faults: ``invalid`` (a figure that is no time or no work), ``below_floor`` (less time than the peaks allow, even if
    the L2 held all it can), ``in_cache`` (less than the traffic with device memory takes: the data lay in the L2, as it
    does in a benchmark and not in an engine), ``host_cost`` (the same long time however little there is to do).

    Args:
        samples: Of one kernel, over all its series.
        machine: The device.

    Returns:
        The usable ones, and the others with their faults, both in the given order.
    """
    usable: list[Sample] = []
    flagged: list[Flagged] = []
    for one in samples:
        fault = _fault(one, machine)
        if fault is None:
            usable.append(one)
        else:
            flagged.append(Flagged(one, *fault))
    plateau = _plateau(usable, machine)
    if plateau is None:
        return usable, flagged
    kept = []
    for one in usable:
        if one.latency_us < 2 * plateau and machine.floor_us(one.work) < plateau / 3:
            flagged.append(Flagged(one, "host_cost", f"{plateau:.3g} µs however little there is to do"))
        else:
            kept.append(one)
    return kept, flagged


def less_than_said(flagged: Sequence[Flagged]) -> str | None:
    """Return why a kernel's work cannot be what its shapes say, from its faults on one device; None if it can.

    One time below the floor is a bad measurement; several mean that the kernel does less, so none of its times can be
    held against this work, on any device.
    """
    below = [one for one in flagged if one.fault == "below_floor"]
    if len(below) < _LEAST:
        return None
    return f"{len(below)} times are below the floor ({below[0].detail}): it does less than its shapes say"


def _fault(one: Sample, machine: Machine) -> tuple[str, str] | None:
    figures = (one.latency_us, one.work.flops, one.work.moved_bytes, *one.axes.values())
    if not all(math.isfinite(figure) for figure in figures):
        return "invalid", "a figure is not finite"
    if one.latency_us <= 0 or one.work.flops < 0 or one.work.moved_bytes <= 0 or min(one.axes.values(), default=0) < 0:
        return "invalid", "a time or a size is not positive"
    memory, compute = machine.memory_us(one.work), machine.compute_us(one.work)
    if one.latency_us >= _SLACK * max(memory, compute):
        return None
    # What is read and written in place moves twice and fills the cache once.
    held = min(one.work.moved_bytes, 2 * machine.l2_bytes)
    least = max(compute, memory * (1 - held / one.work.moved_bytes))
    if one.latency_us < _SLACK * least:
        return "below_floor", f"{one.latency_us:.3g} µs where {machine.name} takes at least {least:.3g}"
    return "in_cache", f"{one.latency_us:.3g} µs where device memory takes {memory:.3g}: the data lay in the L2"


def _plateau(usable: Sequence[Sample], machine: Machine) -> float | None:
    """Return the time that little work takes, if it is too long to be a kernel's; None if there is no such plateau."""
    little = sorted(one.latency_us for one in usable if machine.floor_us(one.work) < _LITTLE_US)
    if len(little) < _LEAST or little[0] < _HOST_US:
        return None
    return little[len(little) // 2]
