"""Carry a time from one device to another: how much of it is memory, arithmetic, launch, and what is left."""

from __future__ import annotations

import math

from kb.prediction.constants import Shape
from kb.prediction.machine import Machine
from kb.prediction.values import Work
from kb.values import Frozen

LEAST_SLOPE = 0.02
NO_SLOPE = 0.7
"""Where one measurement stands alone."""


class Parts(Frozen):
    """Time that some work should take on a device, from its peaks and the constants of good kernels, µs."""

    memory: float
    compute: float
    together: float


def parts_of(work: Work, machine: Machine, shape: Shape) -> Parts:
    """Split the expected time of some work on a device; the part of the data that fits the L2 is read from there."""
    room = machine.l2_bytes * shape.cache_share
    held = min(1.0, room / work.moved_bytes) ** 4 if work.moved_bytes > 0 else 0.0
    cache_gbps = shape.cache_gbps * machine.sms * machine.clock_mhz / 2000
    mem_gbps = machine.mem_gbps * machine.held_memory
    each = (1 - held) / mem_gbps + held / max(cache_gbps, mem_gbps)
    memory = shape.memory * work.moved_bytes * each / 1e3
    compute = shape.compute * machine.compute_us(work) / machine.held_clock
    return Parts(memory, compute, joined(memory, compute, shape.sharpness))


def joined(first: float, second: float, sharpness: float) -> float:
    """Return two times joined: between their larger and their sum."""
    largest = max(first, second)
    if largest <= 0:
        return 0.0
    both: float = ((first / largest) ** sharpness + (second / largest) ** sharpness) ** (1 / sharpness)
    return largest * both


class Carried(Frozen):
    """A time on the target, and how much hangs on what the model cannot know."""

    us: float
    doubt: float
    """Distance in logarithms between leaving what is unexplained as it is and scaling it as the rest."""
    reach: float
    """Logarithm of the ratio of expected times on the two devices, absolute."""


def carry(
    latency_us: float, work: Work, source: Machine, target: Machine, *, slope: float | None, shape: Shape
) -> Carried:
    """Carry the measured time of some work from one device to another.

    A launch constant stays. Of the rest, what the peaks explain is scaled by them; what is left (latency, waves,
    another limit) is scaled by clocks, and, as far as the time grows with the work on the source, by SM counts, by
    the clocks that the power limits let them hold, and by the ratio of that peak which the work leans on.

    Args:
        latency_us: Measured on ``source``, positive.
        work: What the call does.
        source: Where it was measured.
        target: Where it is asked.
        slope: d log time / d log work around this shape on the source; None where it is not known.
        shape: Constants.
    """
    sharpness = shape.sharpness
    here, there = parts_of(work, source, shape), parts_of(work, target, shape)
    launch = min(shape.launch_us, 0.8 * latency_us)
    busy = latency_us - launch
    explained = min(here.together, busy)
    share = explained / busy
    rest = busy * max(0.0, 1 - share**sharpness) ** (1 / sharpness)
    scaled = there.together * (explained / here.together) if here.together > 0 else 0.0
    grows = min(1.0, max(LEAST_SLOPE, NO_SLOPE if slope is None else slope)) ** shape.lean
    left = rest * math.exp(_rest_ratio(work, source, target, here=here, grows=grows, shape=shape))
    fixed = rest * (source.clock_mhz / target.clock_mhz) ** shape.clock
    wholly = there.together / here.together if here.together > 0 else 1.0
    us = launch + joined(scaled, left, sharpness)
    still = launch + joined(scaled, fixed, sharpness)
    moved = launch + joined(scaled, rest * wholly, sharpness)
    return Carried(us, abs(math.log(moved / still)), abs(math.log(wholly)))


def _rest_ratio(work: Work, source: Machine, target: Machine, *, here: Parts, grows: float, shape: Shape) -> float:
    """Return the logarithm by which the unexplained time changes from source to target."""
    weighed = here.compute + here.memory * shape.balance
    arithmetic = here.compute / weighed if weighed > 0 else 0.0
    held = math.log(source.held_clock / target.held_clock)
    rates = held + math.log(
        source.rates.get(work.dtype, source.rates["bfloat16"]) / target.rates.get(work.dtype, target.rates["bfloat16"])
    )
    bandwidths = math.log(source.mem_gbps * source.held_memory / (target.mem_gbps * target.held_memory))
    return (
        shape.clock * math.log(source.clock_mhz / target.clock_mhz)
        + grows * (held + shape.units * math.log(source.sms / target.sms))
        + grows * (shape.arithmetic * arithmetic * rates + shape.traffic * (1 - arithmetic) * bandwidths)
    )
