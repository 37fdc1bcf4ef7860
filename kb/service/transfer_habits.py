"""What the kernels of a family are used to: how far above the expected time they lie, from tiny to large."""

from collections.abc import Sequence

from kb.prediction.constants import Habit, Shape
from kb.prediction.measurements import Measurements

_STEP = 0.5
"""Between two points of a habit, and how far around one measurements count: logarithms of the expected time."""
_ENOUGH = 15
"""Measurements around a point."""
_NOISE = 0.05
"""Added to every scatter: times of one shape differ by as much."""

_MIDDLE = 1.349
"""Width of the middle half of a normal distribution, in standard deviations."""


def habits(known: Measurements, shape: Shape) -> dict[str, tuple[Habit, ...]]:
    """Return the habits of all families in a set of measurements.

    Args:
        known: Measurements; none of the device that is to be predicted may be among them.
        shape: Constants that the expected times are taken with.
    """
    families: dict[str, list[tuple[float, float]]] = {}
    for operator, kernel in known.kernels():
        curves, _ = known.of_kernel(operator, kernel)
        for of_device in curves.values():
            for curve in of_device.values():
                families.setdefault(operator, []).extend(curve.excesses(shape))
    made = {family: _habit(sorted(found)) for family, found in families.items()}
    return {family: found for family, found in sorted(made.items()) if found}


def _habit(found: Sequence[tuple[float, float]]) -> tuple[Habit, ...]:
    made = []
    first, last = round(found[0][0] / _STEP), round(found[-1][0] / _STEP)
    for index in range(first, last + 1):
        around = sorted(excess for log_us, excess in found if abs(log_us - index * _STEP) <= _STEP)
        if len(around) >= _ENOUGH:
            low, middle, high = (around[int(part * (len(around) - 1))] for part in (0.25, 0.5, 0.75))
            made.append(Habit(index * _STEP, middle, (high - low) / _MIDDLE + _NOISE))
    return tuple(made)
