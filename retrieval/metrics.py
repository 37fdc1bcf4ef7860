"""Quality of a ranking against graded answers, with intervals; and agreement of two graders. Standard library only."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

USEFUL = 2
"""From this grade on an entry answers a query; where a query has no such entry, its best ones do."""

GRADES = 4
"""How many grades there are: 0 to 3."""


@dataclass(frozen=True)
class Quality:
    """How good the ranking for one query is; every figure is from 0 to 1."""

    ndcg_at_10: float
    mrr_at_10: float
    recall_at_5: float
    hit_at_1: float


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if the difference is told from none."""
        return self.low > 0.0 or self.high < 0.0


def quality(ranked: Sequence[str], grades: Mapping[str, int]) -> Quality:
    """Judge the ranking for one query.

    Args:
        ranked: Ids, best first; an id that comes again counts at its first place.
        grades: Id to grade, 0 to 3; what is missing has 0. At least one is above 0.

    Raises:
        ValueError: No grade is above 0: nothing could be found.
    """
    best = max(grades.values(), default=0)
    if best <= 0:
        raise ValueError("no grade is above 0")
    order = list(dict.fromkeys(ranked))
    useful = {one for one, grade in grades.items() if grade >= min(USEFUL, best)}
    places = [place for place, one in enumerate(order[:10], start=1) if one in useful]
    return Quality(
        ndcg_at_10=ndcg(order, grades, depth=10),
        mrr_at_10=1.0 / places[0] if places else 0.0,
        recall_at_5=len(useful.intersection(order[:5])) / min(len(useful), 5),
        hit_at_1=float(bool(order) and order[0] in useful),
    )


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], *, depth: int) -> float:
    """Return the normalised discounted cumulative gain, with gains of 2^grade - 1.

    Args:
        ranked: Distinct ids, best first.
        grades: Id to grade; what is missing has 0.
        depth: How many places count.
    """
    ideal = _gain(sorted(grades.values(), reverse=True)[:depth])
    return _gain([grades.get(one, 0) for one in ranked[:depth]]) / ideal if ideal > 0 else 0.0


def _gain(grades: Iterable[int]) -> float:
    return sum((2.0**grade - 1.0) / math.log2(place + 1) for place, grade in enumerate(grades, start=1))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values does not exceed, between neighbours by straight line.

    Args:
        values: At least one.
        share: 0 to 1; 0.5 is the median.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def bootstrap(differences: Sequence[float], *, samples: int = 10_000, level: float = 0.95, seed: int = 1) -> Interval:
    """Return the mean of paired differences with its percentile interval over resampled queries.

    Args:
        differences: One a query: a figure of one way of searching minus that of another, for the same query.
        samples: How often the queries are drawn anew, with replacement.
        level: Share of the resampled means inside of the interval.
        seed: The same one gives the same interval.

    Raises:
        ValueError: There is no difference.
    """
    if not differences:
        raise ValueError("no differences")
    draw = random.Random(seed)  # noqa: S311 - statistics, not secrets
    count = len(differences)
    means = [math.fsum(draw.choices(differences, k=count)) / count for _ in range(samples)]
    tail = (1.0 - level) / 2.0
    return Interval(math.fsum(differences) / count, percentile(means, tail), percentile(means, 1.0 - tail))


def kappa(pairs: Sequence[tuple[int, int]]) -> float:
    """Return Cohen's kappa of two graders, with quadratic weights: 1 is full agreement, 0 that of chance.

    Args:
        pairs: The two grades of every judged thing, each 0 to 3.

    Returns:
        Kappa; 1 if both always give one and the same grade.

    Raises:
        ValueError: There is no pair, or a grade is out of range.
    """
    if not pairs:
        raise ValueError("no pairs of grades")
    if any(not 0 <= grade < GRADES for pair in pairs for grade in pair):
        raise ValueError(f"grades go from 0 to {GRADES - 1}")
    left = [sum(pair[0] == grade for pair in pairs) for grade in range(GRADES)]
    right = [sum(pair[1] == grade for pair in pairs) for grade in range(GRADES)]
    seen = sum((first - second) ** 2 for first, second in pairs)
    chance = sum(
        (first - second) ** 2 * left[first] * right[second] for first in range(GRADES) for second in range(GRADES)
    ) / len(pairs)
    return 1.0 - seen / chance if chance > 0 else 1.0
