"""How far the work model is off, over many pairs of measurements at once.

The same arithmetic as :func:`kb.prediction.carrying.carry`, over arrays: in plain Python one evaluation of 12,000 pairs
took 0.8 s and with numpy 0.02, and a search takes thousands. A test holds the two against each other.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kb.prediction.carrying import LEAST_SLOPE, NO_SLOPE
from kb.prediction.constants import Shape
from kb.prediction.machine import Machine
from kb.prediction.values import Work
from kb.values import Frozen

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

_QUANTILES = (0.3, 0.5, 0.7, 0.9)
_DRAWN = 2.0
"""How strongly the constants are drawn to where the search starts: with few designs a fit carries the faults of one
pair of devices to the next, and did worse than the start."""


class Pair(Frozen):
    """One shape, measured on two devices."""

    family: str
    work: Work
    source: Machine
    target: Machine
    slope: float | None
    source_us: float
    target_us: float


class _Side:
    """One device of every pair, as arrays."""

    def __init__(self, works: Sequence[Work], machines: Sequence[Machine]) -> None:
        import numpy as np

        both = list(zip(works, machines, strict=True))
        self.compute_us = np.array([machine.compute_us(work) for work, machine in both])
        self.bytes = np.array([work.moved_bytes for work, _ in both])
        self.rate = np.array([machine.rates.get(work.dtype, machine.rates["bfloat16"]) for work, machine in both])
        self.mem_gbps = np.array([machine.mem_gbps * machine.held_memory for _, machine in both])
        self.held_clock = np.array([machine.held_clock for _, machine in both])
        self.l2_bytes = np.array([machine.l2_bytes for _, machine in both])
        self.sms = np.array([machine.sms for _, machine in both])
        self.clock = np.array([machine.clock_mhz for _, machine in both])

    def parts(self, shape: Shape) -> tuple["Array", "Array", "Array"]:
        import numpy as np

        held = np.minimum(1.0, self.l2_bytes * shape.cache_share / self.bytes) ** 4
        cache = np.maximum(shape.cache_gbps * self.sms * self.clock / 2000, self.mem_gbps)
        memory = shape.memory * self.bytes * ((1 - held) / self.mem_gbps + held / cache) / 1e3
        compute = shape.compute * self.compute_us / self.held_clock
        return memory, compute, _joined(memory, compute, shape.sharpness)


def _joined(first: "Array", second: "Array", sharpness: float) -> "Array":
    joined: Array = (first**sharpness + second**sharpness) ** (1 / sharpness)
    return joined


def carried(pairs: Sequence[Pair]) -> Callable[[Shape], "Array"]:
    """Return a function of the constants that carries all pairs: times on their targets, µs [len(pairs)]."""
    import numpy as np

    works = [one.work for one in pairs]
    here, there = _Side(works, [one.source for one in pairs]), _Side(works, [one.target for one in pairs])
    us = np.array([one.source_us for one in pairs])
    slope = np.clip([NO_SLOPE if one.slope is None else one.slope for one in pairs], LEAST_SLOPE, 1.0)

    def carry_all(shape: Shape) -> "Array":
        memory, compute, together = here.parts(shape)
        launch = np.minimum(shape.launch_us, 0.8 * us)
        busy = us - launch
        explained = np.minimum(together, busy)
        rest = busy * np.maximum(0.0, 1 - (explained / busy) ** shape.sharpness) ** (1 / shape.sharpness)
        scaled = there.parts(shape)[2] * explained / together
        grows = slope**shape.lean
        arithmetic = compute / (compute + memory * shape.balance)
        held = np.log(here.held_clock / there.held_clock)
        ratio = shape.clock * np.log(here.clock / there.clock) + grows * (
            held
            + shape.units * np.log(here.sms / there.sms)
            + shape.arithmetic * arithmetic * (held + np.log(here.rate / there.rate))
            + shape.traffic * (1 - arithmetic) * np.log(here.mem_gbps / there.mem_gbps)
        )
        found: Array = launch + _joined(scaled, rest * np.exp(ratio), shape.sharpness)
        return found

    return carry_all


def loss_of(pairs: Sequence[Pair]) -> Callable[[Shape], float]:
    """Return a function of the constants: the mean, over families and pairs of devices, of log quantiles of the error.

    Args:
        pairs: At least one.
    """
    import numpy as np

    all_carried = carried(pairs)
    target = np.log([one.target_us for one in pairs])
    groups: dict[tuple[str, str, str], list[int]] = {}
    for index, one in enumerate(pairs):
        groups.setdefault((one.family, one.source.name, one.target.name), []).append(index)
    start: Shape | None = None

    def loss(shape: Shape) -> float:
        nonlocal start
        start = start or shape
        error = np.abs(np.log(all_carried(shape)) - target)
        total = sum(float(np.mean(np.log(np.quantile(error[group], _QUANTILES) + 0.02))) for group in groups.values())
        drawn = sum(math.log(value / getattr(start, name)) ** 2 for name, value in shape.__dict__.items())
        return total / len(groups) + _DRAWN * drawn

    return loss
