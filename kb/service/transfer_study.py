"""``kb eval transfer``: predict what was left out, and say how far off, beside three naive rules."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kb.prediction.constants import FILE, Constants, read
from kb.prediction.curve import Curve
from kb.prediction.machine import Machine, case_of, design_of
from kb.prediction.measurements import Measurements
from kb.prediction.predicting import from_curves
from kb.prediction.values import CALIBRATED, SAME_DEVICE, Ask, Prediction, Sample
from kb.service.transfer_choosing import anchored
from kb.service.transfer_fitting import quantile
from kb.values import Frozen

RULES = ("same latency", "bandwidth ratio", "roofline ratio")
ALL = "all others"
"""Source of predictions from every device but the target."""

_LEAST = 5
"""Fewer predictions make no percentile."""


class Scored(Frozen):
    """One prediction beside what was measured."""

    case: str
    family: str
    source: str
    target: str
    kernel: str
    measured_us: float
    prediction: Prediction
    rules_us: tuple[float, ...]
    """What the naive rules say; empty where the shape was not carried from another device."""


class Figures(Frozen):
    """Errors of a set of predictions."""

    case: str
    source: str
    target: str
    family: str
    n: int
    median: float
    """Of |predicted / measured - 1|, percent."""
    p90: float
    coverage: float
    """Share of the measurements inside their 90 % interval, percent."""
    width_median: float
    """Upper over lower bound."""
    width_mean: float
    rules: tuple[tuple[float, float], ...]
    """Median and 90th percentile of each naive rule, percent."""


class Study(Frozen):
    """All of a study."""

    figures: tuple[Figures, ...]
    """A row a case, pair of devices and family."""
    summaries: tuple[Figures, ...]
    """A row a case and pair, and a row a case: geometric means over the families (and pairs) in it."""
    measurements: int
    flagged: tuple[tuple[str, str, str, int], ...]
    """Device, fault, family, measurements."""
    refused: tuple[tuple[str, str, str, int], ...]
    """Source, target, reason, measurements of the target that cannot be predicted from the source."""
    unknown: tuple[tuple[str, int], ...]
    """Devices that the hardware table lacks."""
    constants: tuple[tuple[str, tuple[str, ...]], ...]
    """Target, and the devices that the constants used for it were fitted on."""


class Settings(Frozen):
    """What a study is asked for."""

    calibrate: int = 0
    """Measurements of each series on the target that predictions may use; 0 for none."""
    anchors: tuple[Sample, ...] = ()
    """Measurements on the target that predictions may use, given by the user."""


def study(samples: Sequence[Sample], settings: Settings, *, constants: Path = FILE) -> tuple[Study, list[Scored]]:
    """Predict every measurement from others, as if it had not been made.

    Constants are those that were fitted without any device of the target's design.

    Args:
        samples: Measurements on any number of devices.
        settings: Calibration.
        constants: File of constants.

    Returns:
        The study, and every prediction in it.
    """
    sets = read(constants)
    scored: list[Scored] = []
    refused: dict[tuple[str, str, str], int] = {}
    used: list[tuple[str, tuple[str, ...]]] = []
    by_set: dict[str, Measurements] = {}
    plain = Measurements(samples, sets["all"].shape)
    for machine in sorted(plain.machines.values(), key=lambda one: one.name):
        chosen = set_for(machine, sets)
        if chosen not in by_set:
            by_set[chosen] = Measurements((*samples, *settings.anchors), sets[chosen].shape)
        used.append((machine.name, sets[chosen].devices))
        scored += _target(machine, by_set[chosen], sets[chosen], settings=settings, refused=refused)
    return (
        Study(
            figures=tuple(_grouped(scored)),
            summaries=tuple(_summed(list(_grouped(scored)))),
            measurements=len(samples),
            flagged=_flagged(plain),
            refused=tuple((*key, count) for key, count in sorted(refused.items())),
            unknown=tuple(sorted(plain.unknown.items())),
            constants=tuple(used),
        ),
        scored,
    )


def set_for(machine: Machine, sets: Mapping[str, Constants]) -> str:
    """Return the name of the constants that were fitted without the design of a machine.

    Without such a set ``all`` serves: the study says which devices went into it.
    """
    design = design_of(machine.arch)
    return design if design in sets else "all"


def _target(
    machine: Machine,
    known: Measurements,
    constants: Constants,
    *,
    settings: Settings,
    refused: dict[tuple[str, str, str], int],
) -> Iterator[Scored]:
    own = (one for one in settings.anchors if (there := known.machine(one.device)) and there.name == machine.name)
    settings = settings.with_(anchors=tuple(own))
    for operator, kernel in known.kernels():
        curves, _ = known.of_kernel(operator, kernel)
        sources = {name for one in curves.values() for name in one}
        for series, of_device in curves.items():
            target = of_device.get(machine.name)
            if target is None:
                continue
            judge = _Judge(operator, kernel, series, target, constants)
            yield from judge.same_device()
            for name in sorted(known.machines):
                if name == machine.name:
                    continue
                if name in of_device:
                    yield from judge.pair(of_device[name], settings)
                else:
                    reason = "unseen_shard" if name in sources else "other_kernel"
                    key = (name, machine.name, reason)
                    refused[key] = refused.get(key, 0) + len(target.places)
            others = {name: curve for name, curve in of_device.items() if name != machine.name}
            if len(others) > 1:
                yield from judge.together(others, settings)


def predicted_and_measured(scored: Sequence[Scored], case: str) -> list[tuple[str, float, float, float, float]]:
    """Return what a plot of predicted against measured latency needs.

    Args:
        scored: From :func:`study`.
        case: ``same_device``, ``sibling``, ``other_memory``, ``generations``, or ``calibrated`` and one of these.

    Returns:
        Family, measured, predicted, lower and upper bound of each prediction, µs.
    """
    made = []
    for one in scored:
        said = one.prediction
        if one.case == case and said.latency_us and said.low_us and said.high_us:
            made.append((one.family, one.measured_us, said.latency_us, said.low_us, said.high_us))
    return made


class _Judge:
    """Predicts the measurements of one curve and holds them against what was measured."""

    def __init__(self, operator: str, kernel: str, series: str, target: Curve, constants: Constants) -> None:
        self._operator, self._kernel, self._series = operator, kernel, series
        self._target, self._constants = target, constants
        self._machine = target.machine

    def same_device(self) -> Iterator[Scored]:
        """Each shape from the others of the same device."""
        if len(self._target.places) < _LEAST:
            return
        for place in self._target.places:
            found = self._predict(place, {self._machine.name: self._target}, hidden=True)
            if found is not None:
                yield self._scored(found, place, SAME_DEVICE, self._machine.name, ())

    def pair(self, source: Curve, settings: Settings) -> Iterator[Scored]:
        """Each shape from one other device, and again with measurements on the target if those are asked for."""
        case = case_of(source.machine, self._machine)
        anchors = anchored(self._target, settings.calibrate) if settings.calibrate else None
        given = self._given(settings)
        for place in self._target.places:
            if given is not None and place in given:
                continue
            rules = self._rules(source, place)
            found = self._predict(place, {source.machine.name: source})
            if found is not None:
                yield self._scored(found, place, case, source.machine.name, rules)
            for curve in (anchors, given):
                if curve is None or place in curve:
                    continue
                found = self._predict(place, {source.machine.name: source, self._machine.name: curve})
                if found is not None:
                    yield self._scored(found, place, f"{CALIBRATED} {case}", source.machine.name, rules)

    def together(self, others: Mapping[str, Curve], settings: Settings) -> Iterator[Scored]:
        """Each shape from all other devices, and again with measurements on the target."""
        anchors = anchored(self._target, settings.calibrate) if settings.calibrate else None
        given = self._given(settings)
        for place in self._target.places:
            if given is not None and place in given:
                continue
            found = self._predict(place, others)
            if found is None or found.case is None:
                continue
            yield self._scored(found, place, found.case, ALL, ())
            for curve in (anchors, given):
                if curve is None or place in curve:
                    continue
                with_own = self._predict(place, {**others, self._machine.name: curve})
                if with_own is not None:
                    yield self._scored(with_own, place, f"{CALIBRATED} {found.case}", ALL, ())

    def _given(self, settings: Settings) -> Curve | None:
        mine = {
            self._target.place(one.axes)
            for one in settings.anchors
            if (one.operator, one.kernel, one.series) == (self._operator, self._kernel, self._series)
            and set(one.axes) == set(self._target.names)
        }
        places = [place for place in self._target.places if place in mine]
        return self._target.only(places) if places else None

    def _predict(
        self, place: tuple[float, ...], curves: Mapping[str, Curve], *, hidden: bool = False
    ) -> Prediction | None:
        sample = self._target.sample(place)
        ask = Ask(self._machine.name, self._operator, self._kernel, self._series, sample.axes, sample.work)
        made = from_curves(ask, self._machine, curves=curves, constants=self._constants, hidden=hidden)
        return made if made.predictable else None

    def _rules(self, source: Curve, place: tuple[float, ...]) -> tuple[float, ...]:
        sample = self._target.sample(place)
        found = source.at(place, sample.work)
        if found is None:
            return ()
        here, there = source.machine, self._machine
        return (
            found.us,
            found.us * here.mem_gbps / there.mem_gbps,
            found.us * there.floor_us(sample.work) / here.floor_us(sample.work),
        )

    def _scored(
        self, found: Prediction, place: tuple[float, ...], case: str, source: str, rules: tuple[float, ...]
    ) -> Scored:
        measured = self._target.sample(place).latency_us
        return Scored(case, self._operator, source, self._machine.name, self._kernel, measured, found, rules)


def _grouped(scored: Sequence[Scored]) -> Iterator[Figures]:
    groups: dict[tuple[str, str, str, str], list[Scored]] = {}
    for one in scored:
        groups.setdefault((one.case, one.source, one.target, one.family), []).append(one)
    for (case, source, target, family), found in sorted(groups.items()):
        if len(found) >= _LEAST:
            yield _figures(found, case=case, source=source, target=target, family=family)


def _figures(found: Sequence[Scored], *, case: str, source: str, target: str, family: str) -> Figures:
    errors = _percent([(one.prediction.latency_us or math.nan, one.measured_us) for one in found])
    inside = [_inside(one) for one in found]
    widths = sorted((one.prediction.high_us or math.nan) / (one.prediction.low_us or math.nan) for one in found)
    rules = []
    for index in range(len(RULES) if found[0].rules_us else 0):
        naive = _percent([(one.rules_us[index], one.measured_us) for one in found])
        rules.append((quantile(naive, 0.5), quantile(naive, 0.9)))
    return Figures(
        case=case,
        source=source,
        target=target,
        family=family,
        n=len(found),
        median=quantile(errors, 0.5),
        p90=quantile(errors, 0.9),
        coverage=100 * sum(inside) / len(inside),
        width_median=quantile(widths, 0.5),
        width_mean=sum(widths) / len(widths),
        rules=tuple(rules),
    )


def _inside(one: Scored) -> bool:
    low, high = one.prediction.low_us, one.prediction.high_us
    return low is not None and high is not None and low <= one.measured_us <= high


def _percent(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return sorted(100 * abs(predicted / measured - 1) for predicted, measured in pairs)


def _summed(figures: Sequence[Figures]) -> Iterator[Figures]:
    pairs: dict[tuple[str, str, str], list[Figures]] = {}
    cases: dict[str, list[Figures]] = {}
    for one in figures:
        pairs.setdefault((one.case, one.source, one.target), []).append(one)
        label = f"{one.case}, {ALL}" if one.source == ALL else one.case
        cases.setdefault(label, []).append(one)
    for (case, source, target), found in sorted(pairs.items()):
        yield _mean(found, case=case, source=source, target=target)
    for label, found in sorted(cases.items()):
        yield _mean(found, case=label, source="every", target="every")


def _mean(found: Sequence[Figures], *, case: str, source: str, target: str) -> Figures:
    """Join rows: geometric means of errors and widths; coverage over all predictions."""
    total = sum(one.n for one in found)
    shared = min(len(one.rules) for one in found)
    return Figures(
        case=case,
        source=source,
        target=target,
        family=f"{len(found)} rows",
        n=total,
        median=_geometric([one.median for one in found]),
        p90=_geometric([one.p90 for one in found]),
        coverage=sum(one.coverage * one.n for one in found) / total,
        width_median=_geometric([one.width_median for one in found]),
        width_mean=_geometric([one.width_mean for one in found]),
        rules=tuple(
            (_geometric([one.rules[i][0] for one in found]), _geometric([one.rules[i][1] for one in found]))
            for i in range(shared)
        ),
    )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(max(value, 0.01)) for value in values) / len(values))


def _flagged(known: Measurements) -> tuple[tuple[str, str, str, int], ...]:
    counts: dict[tuple[str, str, str], int] = {}
    for operator, kernel in known.kernels():
        for one in known.of_kernel(operator, kernel)[1]:
            key = (one.sample.device, one.fault, operator)
            counts[key] = counts.get(key, 0) + 1
    return tuple((*key, count) for key, count in sorted(counts.items()))
