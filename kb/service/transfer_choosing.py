"""Which shapes to measure on a target: those that stand for the others, chosen before anything was measured there."""

import math
from collections.abc import Sequence

from kb.prediction.curve import Curve, Place

_TURNS = 3


def anchored(target: Curve, count: int) -> Curve | None:
    """Return a curve with some of the measurements alone; None if that would be more than half of them.

    The choice looks at shapes and at no time, so that it can be made before anything was measured.
    """
    if len(target.places) < 2 * count:
        return None
    key = ("chosen", count)
    if key not in target.kept:
        target.kept[key] = (target.only(chosen(target.places, count)), None, None)
    made: Curve = target.kept[key][0]
    return made


def chosen(places: Sequence[Place], count: int) -> list[Place]:
    """Return the shapes to which all shapes are nearest on average: k-medoids, over the logarithms of the sizes.

    Greedy, then exchanged one for one while that helps. Of equals the first counts: it is the same each time.

    Args:
        places: All shapes that are wanted, at least ``count``.
        count: How many may be measured, at least 1.

    Source:
        L. Kaufman, P. J. Rousseeuw, Finding Groups in Data, 1990, chapter 2 (PAM).
    """
    apart = [[math.dist(one, other) for other in places] for one in places]
    taken: list[int] = []
    for _ in range(count):
        taken.append(_best(apart, taken)[0])
    for _ in range(_TURNS):
        moved = False
        for i in range(count):
            rest = taken[:i] + taken[i + 1 :]
            now = sum(map(min, *(apart[one] for one in taken), apart[taken[i]]))
            best, least = _best(apart, rest)
            if least < now - 1e-9:
                taken[i], moved = best, True
        if not moved:
            break
    return [places[one] for one in taken]


def _best(apart: Sequence[Sequence[float]], taken: Sequence[int]) -> tuple[int, float]:
    """Return the shape that, beside those taken, leaves the least distance, and that distance."""
    nearest = [math.inf] * len(apart)
    for one in taken:
        nearest = list(map(min, nearest, apart[one]))
    left = {one: sum(map(min, nearest, apart[one])) for one in range(len(apart)) if one not in taken}
    best = min(left, key=lambda one: (left[one], one))
    return best, left[best]
