"""Measurements in the order in which predictions ask for them: by kernel, series and device, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kb.errors import DeviceUnavailableError
from kb.prediction.checking import check, less_than_said
from kb.prediction.constants import Shape
from kb.prediction.curve import Curve
from kb.prediction.machine import Machine, machine_of
from kb.prediction.values import Flagged, Sample


class Measurements:
    """A set of measurements, checked once, for any number of predictions.

    Args:
        samples: In any order, of any kernels and devices.
        shape: Constants of the work model.
    """

    def __init__(self, samples: Iterable[Sample], shape: Shape) -> None:
        self._shape = shape
        self._raw: dict[tuple[str, str], dict[str, list[Sample]]] = {}
        self.unknown: dict[str, int] = {}
        """Device to how many measurements were left out, because the hardware table lacks it or one of its peaks."""
        self.machines: dict[str, Machine] = {}
        """Device of the table to its peaks."""
        self._names: dict[str, Machine | None] = {}
        for one in samples:
            machine = self.machine(one.device)
            if machine is None:
                self.unknown[one.device] = self.unknown.get(one.device, 0) + 1
                continue
            self.machines[machine.name] = machine
            self._raw.setdefault((one.operator, one.kernel), {}).setdefault(machine.name, []).append(one)
        self._checked: dict[tuple[str, str], tuple[dict[str, dict[str, Curve]], tuple[Flagged, ...]]] = {}

    def machine(self, device: str) -> Machine | None:
        """Return the peaks of a device, by any of its names; None where they are not known."""
        if device not in self._names:
            self._names[device] = _known(device)
        return self._names[device]

    def kernels(self) -> tuple[tuple[str, str], ...]:
        """Return operator and kernel of everything that was measured, in order."""
        return tuple(sorted(self._raw))

    def of_kernel(self, operator: str, kernel: str) -> tuple[Mapping[str, Mapping[str, Curve]], tuple[Flagged, ...]]:
        """Return the curves of a kernel, by series and device, and what was flagged; empty if it was never measured."""
        key = (operator, kernel)
        if key not in self._checked:
            self._checked[key] = self._check(self._raw.get(key, {}))
        return self._checked[key]

    def _check(self, raw: Mapping[str, list[Sample]]) -> tuple[dict[str, dict[str, Curve]], tuple[Flagged, ...]]:
        curves: dict[str, dict[str, Curve]] = {}
        checked = {name: check(raw[name], self.machines[name]) for name in sorted(raw)}
        flagged = [one for _, faults in checked.values() for one in faults]
        less = next((why for _, faults in checked.values() if (why := less_than_said(faults)) is not None), None)
        if less is not None:
            kept = [one for usable, _ in checked.values() for one in usable]
            return {}, (*flagged, *(Flagged(one, "below_floor", less) for one in kept))
        for name, (usable, _) in checked.items():
            series: dict[tuple[str, frozenset[str]], list[Sample]] = {}
            for one in usable:
                series.setdefault((one.series, frozenset(one.axes)), []).append(one)
            # Of two sets of axes under one series the one with more measurements counts.
            for (title, _), samples in sorted(series.items(), key=lambda one: len(one[1])):
                curves.setdefault(title, {})[name] = Curve(samples, self.machines[name], self._shape)
        return curves, tuple(flagged)


def _known(name: str) -> Machine | None:
    try:
        return machine_of(name)
    except DeviceUnavailableError:
        return None
