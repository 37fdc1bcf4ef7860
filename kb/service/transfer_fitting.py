"""Fit the constants of predictions on measurements: once on all of them, once without each design of chip."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from kb.errors import ConfigError
from kb.prediction.constants import Constants, Shape, Spread
from kb.prediction.curve import Curve
from kb.prediction.estimating import CRAMPED, OUTSIDE, Estimate, estimate
from kb.prediction.machine import design_of
from kb.prediction.measurements import Measurements
from kb.prediction.values import CALIBRATED, GENERATIONS, OTHER_MEMORY, SAME_DEVICE, SIBLING, Sample
from kb.service.transfer_choosing import anchored
from kb.service.transfer_habits import habits
from kb.service.transfer_loss import Pair, loss_of
from kb.values import Frozen

ANCHORS = 8
"""Measurements on the target that the calibrated case is fitted with."""

START = Shape(
    sharpness=2.0, memory=1.25, compute=1.6, cache_share=0.5, cache_gbps=50.0, launch_us=2.0, clock=1.0, units=0.5,
    arithmetic=0.7, traffic=0.2, lean=1.0, balance=1.0,
)  # fmt: skip
"""Round figures that stood before any fit; the search starts there, and is drawn there where the data do not say."""

_LOWER = Shape(
    sharpness=1.1, memory=1.0, compute=1.0, cache_share=0.1, cache_gbps=10.0, launch_us=0.2, clock=0.05, units=0.05,
    arithmetic=0.1, traffic=0.02, lean=0.3, balance=0.2,
)  # fmt: skip
_UPPER = Shape(
    sharpness=8.0, memory=2.5, compute=5.0, cache_share=1.0, cache_gbps=150.0, launch_us=6.0, clock=2.0, units=1.5,
    arithmetic=2.0, traffic=1.0, lean=3.0, balance=5.0,
)  # fmt: skip

_ROUNDS = 12
_EACH = 200
"""Most pairs of measurements of one family on one pair of devices that the work model is fitted on."""
_ENOUGH = 40
"""Residuals of a family that make a spread of their own."""

_CASES = (SAME_DEVICE, OUTSIDE, SIBLING, OTHER_MEMORY, GENERATIONS, CRAMPED, CALIBRATED)
_MANY = 1000
"""Residuals of a case that make weights and spreads of its own; with fewer it borrows."""
_BORROWS = {
    OUTSIDE: SAME_DEVICE,
    SIBLING: SAME_DEVICE,
    OTHER_MEMORY: SAME_DEVICE,
    CRAMPED: GENERATIONS,
    CALIBRATED: GENERATIONS,
}
"""Where a case has too few. Chips of one design differ by little more than neighbouring shapes on one of them."""

_OF_FAMILIES = (SAME_DEVICE, OUTSIDE)
"""Cases in which a family has a spread of its own. Between devices a family's residuals come from too few pairs of
devices to say how far the next pair is off: there all families count together."""

_REACH = 16.0
"""Distance, in logarithms, over which shapes on the target hang together; of round figures the one that did best."""

_SIZES = (0.05, 0.5, 0.05, 0.3, 0.1)
"""Weights before any fit: a constant, bend, gap, doubt, reach."""

_STRIDE = 3
"""Of the shapes that two devices have in common every so many make a residual; neighbours are nearly the same one."""


class Residual(Frozen):
    """One estimate, and what was measured."""

    family: str
    case: str
    parts: tuple[float, ...]
    off: float
    """log(measured / estimated)."""


def fit(samples: Sequence[Sample], *, rounds: int = _ROUNDS) -> dict[str, Constants]:
    """Fit all sets of constants.

    Args:
        samples: Measurements on several devices.
        rounds: Of the search.

    Returns:
        ``all``, and for every design of chip in the samples the constants without its devices.

    Raises:
        ConfigError: No kernel was measured at one shape on two devices.
    """
    known = Measurements(samples, START)
    if not pairs_of(known):
        raise ConfigError("nothing to fit: no kernel was measured at one shape on two known devices")
    designs = sorted({design_of(machine.arch) for machine in known.machines.values()})
    sets = {"all": fit_on(samples, rounds=rounds)}
    for design in designs:
        others = {name for name, machine in known.machines.items() if design_of(machine.arch) != design}
        rest = [one for one in samples if _on(one, others, known)]
        if len({known.machines[name].arch for name in others}) > 1:
            sets[design] = fit_on(rest, rounds=rounds)
    return sets


def _on(sample: Sample, names: set[str], known: Measurements) -> bool:
    machine = known.machine(sample.device)
    return machine is not None and machine.name in names


def fit_on(samples: Sequence[Sample], *, rounds: int = _ROUNDS) -> Constants:
    """Fit one set of constants on all given measurements."""
    known = Measurements(samples, START)
    pairs = pairs_of(known)
    shape = _search(pairs, rounds=rounds) if pairs else START
    plain = Constants(START, dict.fromkeys(_CASES, _SIZES), {}, _REACH, tuple(sorted(known.machines)))
    plain = plain.with_(habits=habits(known, START))
    # Residuals of fitted constants on what they were fitted on would be too small for devices that they never saw.
    return _with_spreads(plain, list(residuals(known, plain))).with_(shape=shape, habits=habits(known, shape))


def pairs_of(known: Measurements) -> list[Pair]:
    """Return shapes that two devices have in common, evenly thinned."""
    found: dict[tuple[str, str, str], list[Pair]] = {}
    for operator, kernel in known.kernels():
        curves, _ = known.of_kernel(operator, kernel)
        for of_device in curves.values():
            for one, other in itertools.permutations(sorted(of_device), 2):
                pairs = found.setdefault((operator, one, other), [])
                pairs += _common(operator, of_device[one], of_device[other])
    return [pair for pairs in found.values() for pair in pairs[:: max(1, len(pairs) // _EACH)]]


def _common(family: str, source: Curve, target: Curve) -> Iterator[Pair]:
    for place in source.places:
        if place in target:
            one, other = source.sample(place), target.sample(place)
            yield Pair(
                family, one.work, source.machine, target.machine, source.slope(place), one.latency_us, other.latency_us
            )


def _search(pairs: Sequence[Pair], *, rounds: int) -> Shape:
    """Search one constant after the other, with steps that shrink."""
    loss = loss_of(pairs)
    best, least = START, loss(START)
    step = 0.3
    for _ in range(rounds):
        moved = False
        for name in START.__dict__:
            for sign in (1, -1):
                value = getattr(best, name) * math.exp(sign * step)
                tried = best.with_(**{name: min(getattr(_UPPER, name), max(getattr(_LOWER, name), value))})
                if (now := loss(tried)) < least - 1e-5:
                    best, least, moved = tried, now, True
                    break
        if not moved:
            step /= 2
    return best


def residuals(known: Measurements, constants: Constants) -> Iterator[Residual]:
    """Yield what every case is off by, over all devices and pairs of devices of a set of measurements."""
    for operator, kernel in known.kernels():
        curves, _ = known.of_kernel(operator, kernel)
        for of_device in curves.values():
            for target in of_device.values():
                yield from _of_target(operator, target, of_device, constants)


def _of_target(
    operator: str, target: Curve, of_device: Mapping[str, Curve], constants: Constants
) -> Iterator[Residual]:
    name = target.machine.name
    for place in target.places if len(target.places) > ANCHORS // 2 else ():
        found = _off(operator, target, place, {name: target}, constants, hidden=True)
        if found is not None:
            yield found
    anchors = anchored(target, ANCHORS)
    for source, curve in of_device.items():
        if source == name:
            continue
        for place in target.places[::_STRIDE]:
            if (found := _off(operator, target, place, {source: curve}, constants)) is not None:
                yield found
            if anchors is None or place in anchors:
                continue
            if (found := _off(operator, target, place, {source: curve, name: anchors}, constants)) is not None:
                yield found


def _off(
    operator: str,
    target: Curve,
    place: tuple[float, ...],
    curves: Mapping[str, Curve],
    constants: Constants,
    *,
    hidden: bool = False,
) -> Residual | None:
    sample = target.sample(place)
    found: Estimate | None = estimate(
        place,
        sample.work,
        target.machine,
        family=operator,
        curves=curves,
        constants=constants,
        hidden=hidden,
    )
    if found is None:
        return None
    us = max(found.us, target.machine.floor_us(sample.work))
    return Residual(operator, found.case, found.parts, math.log(sample.latency_us / us))


def _with_spreads(constants: Constants, found: Sequence[Residual]) -> Constants:
    by_case: dict[str, list[Residual]] = {case: [] for case in _CASES}
    for one in found:
        by_case[one.case].append(one)
    sizes: dict[str, tuple[float, ...]] = {}
    spreads: dict[str, Spread] = {}
    for case in _CASES:
        lender = case if len(by_case[case]) >= _MANY else _BORROWS.get(case, case)
        lent = by_case[lender]
        sizes[case] = _sizes(lent, constants.sizes[case])
        constants = constants.with_(sizes={**constants.sizes, case: sizes[case]})
        families: dict[str, list[float]] = {}
        for one in lent:
            families.setdefault(one.family, []).append(one.off / constants.size(case, one.parts))
        # Every family counts alike, however many rows it has.
        spreads[case] = _spread([(value, 1 / len(each)) for each in families.values() for value in each])
        for family, each in families.items():
            if len(each) >= _ENOUGH and case in _OF_FAMILIES:
                spreads[f"{case}/{family}"] = _spread([(value, 1.0) for value in each])
    return constants.with_(spreads=spreads)


def _sizes(found: Sequence[Residual], start: Sequence[float]) -> tuple[float, ...]:
    """Return the weights under which errors are most likely, were they distributed as Laplace's law."""
    thinned = found[:: max(1, len(found) // 3000)]
    if not thinned:
        return tuple(start)

    def loss(weights: Sequence[float]) -> float:
        total = 0.0
        for one in thinned:
            size = math.sqrt(sum((w * p) ** 2 for w, p in zip(weights, (1.0, *one.parts), strict=True)))
            total += math.log(size) + abs(one.off) / size
        return total

    best, least = list(start), loss(start)
    for factor in (2.0, 2.0, 1.4, 1.4, 1.2, 1.2, 1.1):
        for i in range(len(best)):
            for change in (factor, 1 / factor):
                tried = [*best[:i], min(3.0, max(0.003, best[i] * change)), *best[i + 1 :]]
                if (now := loss(tried)) < least:
                    best, least = tried, now
                    break
    return tuple(best)


def _spread(weighted: list[tuple[float, float]]) -> Spread:
    """Return the 5th and 95th percentile of weighted values."""
    if not weighted:
        return Spread(-3.0, 3.0, 0)
    weighted.sort()
    total = sum(weight for _, weight in weighted)
    low, high, passed = weighted[0][0], weighted[-1][0], 0.0
    for value, weight in weighted:
        if passed <= 0.05 * total:
            low = value
        passed += weight
        if passed >= 0.95 * total:
            high = value
            break
    return Spread(low, high, len(weighted))


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return a quantile of ordered values, between its neighbours in proportion."""
    where = part * (len(ordered) - 1)
    below = int(where)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (where - below) * (ordered[above] - ordered[below])
