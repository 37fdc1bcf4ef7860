"""The constants of the model, kept as data: what they are, and which devices they were never fitted on."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kb.errors import ConfigError
from kb.values import Frozen

FILE = Path(__file__).with_name("constants.json")

_FIGURES = re.compile(r"\[[-+.,e\d\s]+\]")
"""A list of figures, which stands on one line."""


class Shape(Frozen):
    """Constants of the work model; fitted, all positive."""

    sharpness: float
    """Exponent with which memory, arithmetic and the rest join: 1 adds them up, many take the largest."""
    memory: float
    """Time of the traffic over its floor that good kernels reach."""
    compute: float
    """Likewise of the arithmetic."""
    cache_share: float
    """Share of the L2 that a working set may fill and still be served from there."""
    cache_gbps: float
    """L2 bandwidth of one SM at 2 GHz, 10⁹ bytes a second."""
    launch_us: float
    """Part of every time that no device changes."""
    clock: float
    """Exponent of the ratio of clocks, for what is bound by neither memory nor arithmetic."""
    units: float
    """Exponent of the ratio of SM counts, for the share of it that grows with the work."""
    arithmetic: float
    """Exponent of the ratio of arithmetic peaks, for the share of it that grows with arithmetic."""
    traffic: float
    """Exponent of the ratio of memory bandwidths, for the share of it that grows with traffic."""
    lean: float
    """Exponent on the slope: how soon what grows counts as throughput."""
    balance: float
    """Weight of memory time against arithmetic when the share of arithmetic is taken."""


class Spread(Frozen):
    """Residuals of one case of one family, over their expected size: what the interval is made from."""

    low: float
    """5th percentile of log(measured / predicted) over the expected size."""
    high: float
    """95th percentile."""
    n: int
    """Residuals that they were taken from."""


class Habit(Frozen):
    """By how much the kernels of a family exceed their expected time, around one expected time."""

    log_us: float
    """Of the expected time."""
    excess: float
    """Median of log(measured / expected)."""
    scatter: float
    """Standard deviation of it, from the middle half."""


class Constants(Frozen):
    """All that a prediction needs besides measurements and peaks."""

    shape: Shape
    sizes: Mapping[str, tuple[float, ...]]
    """Case to the weights of a constant and of the parts of :class:`kb.prediction.estimating.Estimate`."""
    spreads: Mapping[str, Spread]
    """``case`` or ``case/family`` to its spread."""
    anchor_reach: float
    """Distance, in logarithms, over which a measurement on the target corrects others."""
    devices: tuple[str, ...]
    """Devices whose measurements went in."""
    habits: Mapping[str, tuple[Habit, ...]] = MappingProxyType({})
    """Family to what its kernels are used to, by rising expected time; families that were not seen are not in it."""

    def size(self, case: str, parts: Sequence[float]) -> float:
        """Return the expected size of an error, in logarithms, from what it is made of."""
        weights = self.sizes[case]
        return math.sqrt(sum((weight * part) ** 2 for weight, part in zip(weights, (1.0, *parts), strict=True)))

    def spread(self, case: str, family: str) -> Spread:
        """Return the spread of a family in a case, or of all families where the family was not seen there."""
        return self.spreads.get(f"{case}/{family}") or self.spreads[case]

    def habit(self, family: str, log_us: float) -> Habit | None:
        """Return what the kernels of a family are used to at an expected time; None where the family was not seen.

        Args:
            family: Operator.
            log_us: Of the expected time. Beyond what was seen the nearest counts.
        """
        known = self.habits.get(family)
        if not known:
            return None
        at = bisect_left(known, log_us, key=lambda one: one.log_us)
        if at == 0 or at == len(known):
            return known[min(at, len(known) - 1)]
        low, high = known[at - 1], known[at]
        part = (log_us - low.log_us) / (high.log_us - low.log_us)
        return Habit(
            log_us,
            low.excess + part * (high.excess - low.excess),
            low.scatter + part * (high.scatter - low.scatter),
        )


@cache
def shipped() -> Constants:
    """Return the constants that come with the package, fitted on all devices of docs/prediction.md."""
    return read(FILE)["all"]


def read(file: Path) -> Mapping[str, Constants]:
    """Read a file of constants: ``all``, and for every device those that were fitted without it.

    Args:
        file: JSON, as :func:`written` makes it.

    Raises:
        ConfigError: It is missing, or not such a file.
    """
    try:
        sets = json.loads(file.read_text(encoding="utf-8"))["sets"]
        made = {
            str(name): Constants(
                Shape(**raw["shape"]),
                {case: tuple(weights) for case, weights in raw["sizes"].items()},
                {case: Spread(**one) for case, one in raw["spreads"].items()},
                float(raw["anchor_reach"]),
                tuple(raw["devices"]),
                {family: tuple(Habit(*map(float, one)) for one in each) for family, each in raw["habits"].items()},
            )
            for name, raw in sets.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file.name} cannot be read as constants: {error}") from error
    if "all" not in made:
        raise ConfigError(f"{file.name} has no set of constants called all")
    return made


def written(sets: Mapping[str, Constants], *, provenance: Mapping[str, object]) -> str:
    """Return the text of a file of constants: JSON, sorted keys, figures with five digits."""
    made = {
        name: {
            "shape": {key: float(f"{value:.5g}") for key, value in one.shape.__dict__.items()},
            "sizes": {case: [float(f"{one:.5g}") for one in weights] for case, weights in one.sizes.items()},
            "anchor_reach": one.anchor_reach,
            "spreads": {
                case: {"low": float(f"{each.low:.5g}"), "high": float(f"{each.high:.5g}"), "n": each.n}
                for case, each in one.spreads.items()
            },
            "devices": list(one.devices),
            "habits": {
                family: [[float(f"{value:.4g}") for value in each.__dict__.values()] for each in habits]
                for family, habits in one.habits.items()
            },
        }
        for name, one in sets.items()
    }
    text = json.dumps({"provenance": provenance, "sets": made}, indent=1, sort_keys=True)
    return _FIGURES.sub(lambda found: " ".join(found[0].split()), text) + "\n"
