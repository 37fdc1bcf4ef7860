"""Correct what was carried from elsewhere by measurements on the target itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kb.prediction.curve import Place
from kb.values import Frozen

_REGIME = 2.0
"""Weight of the predicted time beside the sizes when two shapes are held to be near: two shapes that should take as
long lie in one regime of the kernel, and are off by much the same."""

_NOISE = 0.003
"""Variance of one measurement beside that of the whole."""

_LEANING = 0.5
"""How far, at most likely, the target stays behind what other devices say of slow and fast shapes: as a deviation of
the factor from 1."""

_LEAST_OFF = 0.02
"""Timers alone differ by as much."""


class Anchor(Frozen):
    """One shape, as other devices see it."""

    place: Place
    log_us: float
    """Of the time that they say."""
    excess: float
    """By how much that is above what the peaks of the target let expect, in logarithms."""


class Correction:
    """By how much other devices are off on the target: a surface through the shapes that were measured there.

    A Gaussian process over the sizes and the predicted time, its mean a constant and a multiple of the excess; the same
    as interpolation that is flat far away and goes through the measurements. With few of them, and in plain Python.

    Args:
        anchors: Shapes measured on the target, at least one.
        offs: log(measured / said by other devices), each.
        reach: Distance, in logarithms, over which shapes hang together.

    Source:
        Universal kriging: N. Cressie, Statistics for Spatial Data, revised edition 1993, section 3.4.
    """

    def __init__(self, anchors: Sequence[Anchor], offs: Sequence[float], reach: float) -> None:
        self._anchors, self._reach = tuple(anchors), reach
        count = len(anchors)
        rows = [[self._near(one, other) + _NOISE * (one is other) for other in anchors] for one in anchors]
        self._inverse = inverse(rows)
        self._middle = sum(one.excess for one in anchors) / count
        ones = [1.0] * count
        leans = [one.excess - self._middle for one in anchors]
        on_ones, on_leans = self._solved(ones), self._solved(leans)
        sum_ones, sum_both = dot(ones, on_ones), dot(leans, on_ones)
        sum_leans = dot(leans, on_leans) + 1 / _LEANING**2
        of_ones, of_leans = dot(offs, on_ones), dot(offs, on_leans)
        split = sum_ones * sum_leans - sum_both**2
        self._constant = (of_ones * sum_leans - of_leans * sum_both) / split
        self._lean = (of_leans * sum_ones - of_ones * sum_both) / split
        left = [off - self._constant - self._lean * lean for off, lean in zip(offs, leans, strict=True)]
        self._pulls = self._solved(left)
        self._on_ones, self._sum_ones = on_ones, sum_ones
        self._scale = math.sqrt(max(dot(left, self._pulls) / count, 0.0)) + _LEAST_OFF

    def at(self, one: Anchor) -> tuple[float, float, float]:
        """Return the correction at a shape, how far it is from what was measured (0 to about 1.5), and its error.

        Correction and error are in logarithms.
        """
        near = [self._near(one, other) for other in self._anchors]
        off = self._constant + self._lean * (one.excess - self._middle) + dot(near, self._pulls)
        unseen = 1 - dot(near, self._solved(near)) + (1 - dot(near, self._on_ones)) ** 2 / self._sum_ones
        far = math.sqrt(max(unseen, 0.0))
        return off, far, self._scale * far

    def _near(self, one: Anchor, other: Anchor) -> float:
        squares = sum((a - b) ** 2 for a, b in zip(one.place, other.place, strict=True))
        squares += (_REGIME * (one.log_us - other.log_us)) ** 2
        return math.exp(-math.sqrt(squares) / self._reach)

    def _solved(self, right: Sequence[float]) -> list[float]:
        return [dot(row, right) for row in self._inverse]


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the sum of products."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def inverse(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the inverse of a positive definite matrix, by Gauss and Jordan with the largest pivot of each column."""
    count = len(rows)
    work = [[*row, *(float(i == j) for j in range(count))] for i, row in enumerate(rows)]
    for column in range(count):
        pivot = max(range(column, count), key=lambda row: abs(work[row][column]))
        work[column], work[pivot] = work[pivot], work[column]
        first = work[column][column]
        work[column] = [value / first for value in work[column]]
        for row in range(count):
            if row != column and (factor := work[row][column]) != 0.0:
                work[row] = [a - factor * b for a, b in zip(work[row], work[column], strict=True)]
    return [row[count:] for row in work]
