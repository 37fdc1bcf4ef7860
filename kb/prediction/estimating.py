"""Estimates of one latency: from the same device, from others, and from both; each with the size of its error."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kb.prediction.carrying import Carried, carry, parts_of
from kb.prediction.constants import Constants
from kb.prediction.correcting import Anchor, Correction
from kb.prediction.curve import Curve, Place
from kb.prediction.machine import Machine, case_of, design_of, distance, room
from kb.prediction.values import CALIBRATED, CASES, GENERATIONS, SAME_DEVICE, Work
from kb.values import Frozen

OUTSIDE = "outside"
"""Case of a shape on the same device that lies outside of what was measured there; shown as ``same_device``."""

CRAMPED = "cramped"
"""Case of another generation where the source has less shared memory; shown as ``generations``."""

SHOWN = {OUTSIDE: SAME_DEVICE, CRAMPED: GENERATIONS}
"""Cases with errors of their own to the case that they are shown as."""

_ANCHORS = 16
"""With so many measurements of a series on the target itself, other devices have nothing to add."""


_MISTRUST = 1.0
"""How far a time may be off, in logarithms, for each factor e by which the target has more shared memory."""


class Estimate(Frozen):
    """A latency, and by how much it may be off."""

    us: float
    size: float
    """Expected size of log(true / estimate); the intervals are multiples of it."""
    case: str
    parts: tuple[float, ...]
    """What the size was made from: bend, gap, doubt, reach; in logarithms. Of a corrected one: bend, distance from
    what was measured, doubt, error of the correction."""
    source: str


def estimate(
    place: Place,
    work: Work,
    target: Machine,
    *,
    family: str,
    curves: Mapping[str, Curve],
    constants: Constants,
    hidden: bool = False,
) -> Estimate | None:
    """Estimate a latency from all curves of its series.

    Args:
        place: The asked shape, as the curves place it.
        work: What a call does there.
        target: The asked device.
        family: The operator.
        curves: Device of the table to its curve.
        constants: Of the model.
        hidden: Leave the asked shape out of the target's own curve, as if it had not been measured.
    """
    own = curves.get(target.name)
    others = {name: curve for name, curve in curves.items() if name != target.name}
    count = 0 if own is None else len(own.places) - (hidden and place in own.places)
    if own is not None and count and (not others or count >= _ANCHORS or (place in own.places and not hidden)):
        return _own(place, work, own, constants=constants, hidden=hidden)
    across = _across(place, work, target, family=family, curves=others, constants=constants)
    if across is None or own is None or not count:
        return across
    correction = _correction(own, family=family, others=others, constants=constants, without=place if hidden else None)
    if correction is None:
        return across
    off, far, error = correction.at(_anchor(place, across, own, work))
    parts = (across.parts[0], far, across.parts[2], error)
    return Estimate(across.us * math.exp(off), constants.size(CALIBRATED, parts), CALIBRATED, parts, across.source)


def _own(place: Place, work: Work, own: Curve, *, constants: Constants, hidden: bool) -> Estimate | None:
    found = own.at(place, work, without=place if hidden else None)
    if found is None:
        return None
    case = SAME_DEVICE if found.inside else OUTSIDE
    parts = (found.bend, found.gap, 0.0, 0.0)
    return Estimate(found.us, constants.size(case, parts), case, parts, own.machine.name)


def _across(
    place: Place, work: Work, target: Machine, *, family: str, curves: Mapping[str, Curve], constants: Constants
) -> Estimate | None:
    """Join what the other devices say, each weighed by the size of its error."""
    made = []
    for name in sorted(curves):
        curve = curves[name]
        found = curve.at(place, work)
        if found is None:
            continue
        carried = carry(found.us, work, curve.machine, target, slope=curve.slope(found.nearest), shape=constants.shape)
        carried = drawn(carried, work, curve.machine, target, family=family, constants=constants)
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
    if nearest.case == GENERATIONS and room(curves[nearest.source].machine, target) > 0:
        return Estimate(math.exp(mean), constants.size(CRAMPED, parts), CRAMPED, parts, nearest.source)
    size = sum(weight * one.size for weight, one in zip(weights, made, strict=True)) / total
    return Estimate(math.exp(mean), size, nearest.case, parts, nearest.source)


def drawn(
    carried: Carried, work: Work, source: Machine, target: Machine, *, family: str, constants: Constants
) -> Carried:
    """Draw a carried time to what the family is used to, as far as the target has more shared memory than the source.

    The weight is that of two uncertain values: the time, mistrusted by the room that its kernel lacked, and the
    family's habit with its own scatter.
    """
    more = _MISTRUST * room(source, target)
    expected = max(parts_of(work, target, constants.shape).together, 1e-6)
    habit = constants.habit(family, math.log(expected)) if more > 0 else None
    if habit is None:
        return carried
    weight = more**2 / (more**2 + habit.scatter**2)
    us = math.exp((1 - weight) * math.log(carried.us) + weight * (math.log(expected) + habit.excess))
    return carried.with_(us=us, doubt=(1 - weight) * carried.doubt + weight * habit.scatter)


def _anchor(place: Place, said: Estimate, own: Curve, work: Work) -> Anchor:
    return Anchor(place, math.log(said.us), math.log(said.us / own.expected(work)))


def _correction(
    own: Curve, *, family: str, others: Mapping[str, Curve], constants: Constants, without: Place | None
) -> Correction | None:
    """Return by how much other devices are off where the target was measured; kept with the curve."""
    left_out = without if without in own else None
    key = (id(constants), left_out, *sorted((name, id(curve)) for name, curve in others.items()))
    if key not in own.kept:
        anchors, offs = [], []
        for place in own.places:
            sample = own.sample(place)
            said = _across(place, sample.work, own.machine, family=family, curves=others, constants=constants)
            if said is not None and place != left_out:
                anchors.append(_anchor(place, said, own, sample.work))
                offs.append(math.log(sample.latency_us / said.us))
        made = Correction(anchors, offs, constants.anchor_reach) if anchors else None
        # What the key names by identity is kept alive with it, so that no other object takes its place.
        own.kept[key] = (made, constants, tuple(others.values()))
    kept: Correction | None = own.kept[key][0]
    return kept
