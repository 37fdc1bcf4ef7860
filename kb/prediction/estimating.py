"""Estimates of one latency: from the same device, from others, and from both; each with the size of its error."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kb.prediction.carrying import carry
from kb.prediction.constants import Constants
from kb.prediction.curve import Curve, Place
from kb.prediction.machine import Machine, case_of, design_of, distance
from kb.prediction.values import CALIBRATED, CASES, GENERATIONS, SAME_DEVICE, Work
from kb.values import Frozen

OUTSIDE = "outside"
"""Case of a shape on the same device that lies outside of what was measured there; shown as ``same_device``."""

_ANCHORS = 16
"""With so many measurements of a series on the target itself, other devices have nothing to add."""


class Estimate(Frozen):
    """A latency, and by how much it may be off."""

    us: float
    size: float
    """Expected size of log(true / estimate); the intervals are multiples of it."""
    case: str
    parts: tuple[float, ...]
    """What the size was made from: bend, gap, doubt, reach; in logarithms."""
    source: str


def estimate(
    place: Place,
    work: Work,
    target: Machine,
    *,
    curves: Mapping[str, Curve],
    constants: Constants,
    hidden: bool = False,
) -> Estimate | None:
    """Estimate a latency from all curves of its series.

    Args:
        place: The asked shape, as the curves place it.
        work: What a call does there.
        target: The asked device.
        curves: Device of the table to its curve.
        constants: Of the model.
        hidden: Leave the asked shape out of the target's own curve, as if it had not been measured.
    """
    own = curves.get(target.name)
    others = {name: curve for name, curve in curves.items() if name != target.name}
    count = 0 if own is None else len(own.places) - (hidden and place in own.places)
    if own is not None and count and (not others or count >= _ANCHORS or (place in own.places and not hidden)):
        return _own(place, work, own, constants=constants, hidden=hidden)
    across = _across(place, work, target, curves=others, constants=constants)
    if across is None or own is None or not count:
        return across
    return _anchored(place, across, own, others=others, target=target, constants=constants, hidden=hidden)


def _own(place: Place, work: Work, own: Curve, *, constants: Constants, hidden: bool) -> Estimate | None:
    found = own.at(place, work, without=place if hidden else None)
    if found is None:
        return None
    case = SAME_DEVICE if found.inside else OUTSIDE
    parts = (found.bend, found.gap, 0.0, 0.0)
    return Estimate(found.us, constants.size(case, parts), case, parts, own.machine.name)


def _across(
    place: Place, work: Work, target: Machine, *, curves: Mapping[str, Curve], constants: Constants
) -> Estimate | None:
    """Join what the other devices say, each weighed by the size of its error."""
    made = []
    for name in sorted(curves):
        curve = curves[name]
        found = curve.at(place, work)
        if found is None:
            continue
        carried = carry(found.us, work, curve.machine, target, slope=curve.slope(found.nearest), shape=constants.shape)
        case = case_of(curve.machine, target)
        made_of = (found.bend, found.gap, carried.doubt, carried.reach)
        made.append(Estimate(carried.us, constants.size(case, made_of), case, made_of, name))
    if not made:
        return None
    nearest = min(made, key=lambda one: (CASES.index(one.case), one.size, one.source))
    made = [one for one in made if one.case == nearest.case]
    if nearest.case == GENERATIONS:
        # The design whose peaks are nearest speaks alone: one that is farther away was not seen to add anything.
        nearest = min(made, key=lambda one: (distance(curves[one.source].machine, target), one.source))
        design = design_of(curves[nearest.source].machine.arch)
        made = [one for one in made if design_of(curves[one.source].machine.arch) == design]
    weights = [1 / one.size**2 for one in made]
    total = sum(weights)
    mean = sum(weight * math.log(one.us) for weight, one in zip(weights, made, strict=True)) / total
    parts: tuple[float, ...] = tuple(
        sum(weight * one.parts[i] for weight, one in zip(weights, made, strict=True)) / total for i in range(4)
    )
    size = sum(weight * one.size for weight, one in zip(weights, made, strict=True)) / total
    return Estimate(math.exp(mean), size, nearest.case, parts, nearest.source)


def _anchored(
    place: Place,
    across: Estimate,
    own: Curve,
    *,
    others: Mapping[str, Curve],
    target: Machine,
    constants: Constants,
    hidden: bool,
) -> Estimate:
    """Correct an estimate from other devices by how far it is off at the shapes that were measured on the target."""
    offs, weights = [], []
    nearest = math.inf
    for anchor, off in _offs(own, others=others, target=target, constants=constants).items():
        if hidden and anchor == place:
            continue
        distance = sum(abs(a - b) for a, b in zip(place, anchor, strict=True))
        nearest = min(nearest, distance)
        offs.append(off)
        weights.append(math.exp(-distance / constants.anchor_reach) + 1e-6)
    if not offs:
        return across
    total = sum(weights)
    off = sum(weight * one for weight, one in zip(weights, offs, strict=True)) / total
    apart = math.sqrt(sum(weight * (one - off) ** 2 for weight, one in zip(weights, offs, strict=True)) / total)
    parts = (across.parts[0], min(nearest, 10.0), across.parts[2], apart)
    return Estimate(across.us * math.exp(off), constants.size(CALIBRATED, parts), CALIBRATED, parts, across.source)


def _offs(own: Curve, *, others: Mapping[str, Curve], target: Machine, constants: Constants) -> Mapping[Place, float]:
    """Return by how much other devices are off at the shapes that were measured on the target; kept with the curve."""
    key = (id(constants), *sorted((name, id(curve)) for name, curve in others.items()))
    if key not in own.kept:
        found = {}
        for anchor in own.places:
            sample = own.sample(anchor)
            said = _across(anchor, sample.work, target, curves=others, constants=constants)
            if said is not None:
                found[anchor] = math.log(sample.latency_us / said.us)
        # What the key names by identity is kept alive with it, so that no other object takes its place.
        own.kept[key] = (found, constants, tuple(others.values()))
    return own.kept[key][0]
