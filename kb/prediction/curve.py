"""Times of one series on one device, and what they say of a shape between or beside them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from kb.prediction.carrying import parts_of
from kb.prediction.constants import Shape
from kb.prediction.machine import Machine
from kb.prediction.values import Sample, Work
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REACH = 2.2
"""Neighbours of a slope are within this many units of logarithm: a factor of nine, or three each way on two axes."""

Place = tuple[float, ...]
"""Logarithms of the sizes of the traffic, in the order of their names."""


class Between(Frozen):
    """A time at a shape, from times around it."""

    us: float
    gap: float
    """Width of the bracket, or distance to the nearest measurement, in logarithms; 0 where the shape was measured."""
    bend: float
    """How much the ways of reading it off disagree, in logarithms."""
    inside: bool
    """True if measurements lie on both sides."""
    nearest: Place
    """Of the measured places."""


class Curve:
    """Times of one series of one kernel on one device.

    Args:
        samples: Checked measurements, at least one; several at one shape count as their median.
        machine: The device.
        shape: Constants of the work model.
    """

    def __init__(self, samples: Sequence[Sample], machine: Machine, shape: Shape) -> None:
        self.machine = machine
        self._shape = shape
        self.names = tuple(sorted(samples[0].axes))
        placed: dict[Place, list[Sample]] = {}
        for one in samples:
            placed.setdefault(self.place(one.axes), []).append(one)
        self.places: tuple[Place, ...] = tuple(sorted(placed))
        self._samples = {place: _median(placed[place]) for place in self.places}
        self._us = {place: one.latency_us for place, one in self._samples.items()}
        self._expected = {place: self.expected(one.work) for place, one in self._samples.items()}
        self.kept: dict[tuple[object, ...], tuple[Any, object, object]] = {}
        """What others computed from this curve and may ask for again."""
        self._slopes: dict[Place, float | None] = {}
        self._lines: dict[tuple[int, Place], list[float]] = {}
        for place in self.places:
            for axis in range(len(place)):
                self._lines.setdefault((axis, _but(place, axis)), []).append(place[axis])
        for line in self._lines.values():
            line.sort()

    def place(self, axes: Mapping[str, float]) -> Place:
        """Return where a shape lies: logarithms of its sizes, in the order of ``names``."""
        return tuple(round(math.log(max(1.0, axes[name])), 9) for name in self.names)

    def __contains__(self, place: object) -> bool:
        return place in self._us

    def only(self, places: Sequence[Place]) -> Curve:
        """Return a curve with some of the measurements alone."""
        return Curve([self._samples[place] for place in places], self.machine, self._shape)

    def expected(self, work: Work) -> float:
        """Return the time that some work should take here, µs; never 0."""
        return max(parts_of(work, self.machine, self._shape).together, 1e-6)

    def excesses(self, shape: Shape) -> list[tuple[float, float]]:
        """Return, of every measurement, log expected time (µs) under some constants and log(measured / expected)."""
        found = []
        for one in self._samples.values():
            log_us = math.log(max(parts_of(one.work, self.machine, shape).together, 1e-6))
            found.append((log_us, math.log(one.latency_us) - log_us))
        return found

    def sample(self, place: Place) -> Sample:
        """Return the measurement at a place."""
        return self._samples[place]

    def slope(self, place: Place) -> float | None:
        """Return d log time / d log expected time around a measured place; None if nothing is near."""
        if place not in self._slopes:
            self._slopes[place] = self._slope(place) if place in self._us else None
        return self._slopes[place]

    def _slope(self, place: Place) -> float | None:
        above = below = 0.0
        for other in self.places:
            distance = _distance(place, other)
            if other == place or distance > _REACH:
                continue
            step = math.log(self._expected[other] / self._expected[place])
            if abs(step) > 0.05:
                weight = step / (0.5 + distance)
                above += weight * math.log(self._us[other] / self._us[place])
                below += weight * step
        return above / below if below > 0 else None

    def at(self, place: Place, work: Work, *, without: Place | None = None) -> Between | None:
        """Read off a time at a place.

        Args:
            place: From :meth:`place`.
            work: What a call does there.
            without: A place to leave out, as if it had not been measured.

        Returns:
            The measurement itself, or what its neighbours say; None if there is none.
        """
        if place in self._us and place != without:
            return Between(self._us[place], 0.0, 0.0, True, place)
        expected = self.expected(work)
        found = []
        for axis in range(len(place)):
            ends = self._ends(place, axis, without)
            if ends is not None:
                found.append((*self._between(*ends, place[axis], axis, expected), ends))
        if not found:
            return self._beside(place, expected, without)
        weights = [1 / (gap * gap) for _, gap, _, _ in found]
        mean = sum(weight * math.log(one[0]) for weight, one in zip(weights, found, strict=True)) / sum(weights)
        apart = max(abs(math.log(one[0]) - mean) for one in found)
        bend = max(apart, min(one[2] for one in found))
        nearest = min(found, key=lambda one: one[1])
        low, high = nearest[3]
        beside = min((low, high), key=lambda other: _distance(place, other))
        return Between(math.exp(mean), nearest[1], bend, True, beside)

    def _ends(self, place: Place, axis: int, without: Place | None) -> tuple[Place, Place] | None:
        """Return the nearest measured places on either side along one axis."""
        line = self._lines.get((axis, _but(place, axis)))
        if line is None:
            return None
        if without is not None and _but(without, axis) == _but(place, axis):
            line = [one for one in line if one != without[axis]]
        at = bisect_left(line, place[axis])
        if at == 0 or at == len(line):
            return None
        return _with(place, axis, line[at - 1]), _with(place, axis, line[at])

    def _between(self, low: Place, high: Place, where: float, axis: int, expected: float) -> tuple[float, float, float]:
        """Return time, width of the bracket and bend: affine in the expected time, as latency plus throughput is."""
        part = (where - low[axis]) / (high[axis] - low[axis])
        first, last = self._us[low], self._us[high]
        before, after = self._expected[low], self._expected[high]
        if after - before > 0.02 * after:
            part = min(1.0, max(0.0, (expected - before) / (after - before)))
        straight = first + part * (last - first)
        steps = math.exp((1 - part) * math.log(first) + part * math.log(last))
        return straight, high[axis] - low[axis], abs(math.log(straight / steps))

    def _beside(self, place: Place, expected: float, without: Place | None) -> Between | None:
        """Return what the nearest measurements say of a place outside of them, each scaled by its own slope."""
        known = [other for other in self.places if other != without]
        if not known:
            return None
        near = sorted(known, key=lambda other: (_distance(place, other), other))[:3]
        logs, weights = [], []
        for other in near:
            slope = self.slope(other)
            step = math.log(expected / self._expected[other])
            logs.append(math.log(self._us[other]) + step * min(1.0, max(0.0, 0.7 if slope is None else slope)))
            weights.append(1 / (0.1 + _distance(place, other)) ** 2)
        mean = sum(weight * one for weight, one in zip(weights, logs, strict=True)) / sum(weights)
        bend = max(abs(one - mean) for one in logs)
        return Between(math.exp(mean), _distance(place, near[0]), bend, False, near[0])


def _but(place: Place, axis: int) -> Place:
    return place[:axis] + place[axis + 1 :]


def _with(place: Place, axis: int, value: float) -> Place:
    return (*place[:axis], value, *place[axis + 1 :])


def _distance(one: Place, other: Place) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def _median(samples: Sequence[Sample]) -> Sample:
    """Return the measurement in the middle, of an even number the slower one."""
    return sorted(samples, key=lambda one: one.latency_us)[len(samples) // 2]
