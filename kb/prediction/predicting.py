"""Predict one latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kb.errors import DeviceUnavailableError
from kb.prediction.constants import Constants, shipped
from kb.prediction.curve import Curve
from kb.prediction.estimating import CRAMPED, OUTSIDE, SHOWN, Estimate, estimate
from kb.prediction.machine import Machine, machine_of
from kb.prediction.measurements import Measurements
from kb.prediction.values import CALIBRATED, GENERATIONS, SAME_DEVICE, Ask, Flagged, Prediction, Sample, SpeedUp

TRAFFIC = frozenset(
    {
        "batch", "batch_size", "context_len", "height", "images", "isl", "kv_len", "length", "m", "max_kv_len",
        "max_pages", "num_boxes", "num_pages", "num_queries", "num_rois", "num_rows", "num_seqs", "num_tokens",
        "num_tokens_expanded", "num_windows", "out_height", "out_width", "patches_h", "patches_w", "q_len",
        "query_len", "rows", "seq_len", "step", "tokens", "total_tokens", "width",
    }
)  # fmt: skip
"""Sizes that change from call to call of one deployment; all others belong to the model and how it is sharded."""

_LEAST = 0.02
"""No interval is narrower than this on either side, in logarithms: timers and clocks alone differ by as much."""


def split_axes(axes: Mapping[str, float], *formats: str) -> tuple[str, dict[str, float]]:
    """Split the axes of a workload into what names its series and what may differ within it.

    Args:
        axes: Axis to size.
        formats: dtypes and whatever else has to be equal.

    Returns:
        The series, and the sizes of the traffic.
    """
    fixed = [f"{name}={axes[name]:g}" for name in sorted(axes) if name not in TRAFFIC]
    return " ".join([*formats, *fixed]), {name: float(axes[name]) for name in axes if name in TRAFFIC}


def predict(
    ask: Ask,
    samples: Iterable[Sample] | Measurements,
    *,
    constants: Constants | None = None,
    hidden: bool = False,
) -> Prediction:
    """Predict the latency of a kernel at a shape on a device from measurements elsewhere.

    Args:
        ask: What is asked.
        samples: Measurements, of any kernel and device; those that say nothing about ``ask`` are left out. For many
            predictions make :class:`~kb.prediction.Measurements` of them once.
        constants: Of the model; those of the package unless given.
        hidden: Predict as if the asked shape had not been measured on the asked device.

    Returns:
        Latency with a 90 % interval, or a refusal with its reason: another kernel, an unseen shard, an unknown device.
        Bad measurements raise nothing: they are flagged in the answer.
    """
    constants = constants or shipped()
    try:
        machine = machine_of(ask.device)
    except DeviceUnavailableError as error:
        return Prediction(False, (error.message,), refusal="unknown_device")
    if machine is None:
        return Prediction(False, (f"the hardware table lacks a peak of {ask.device}",), refusal="no_peak")
    wrong = _unusable(ask)
    if wrong is not None:
        return Prediction(False, (wrong,), refusal="unusable_ask")
    known = samples if isinstance(samples, Measurements) else Measurements(samples, constants.shape)
    curves, flagged = known.of_kernel(ask.operator, ask.kernel)
    mine = tuple(one for one in flagged if one.sample.series == ask.series)
    usable = {name: one for name, one in curves.get(ask.series, {}).items() if set(one.names) == set(ask.axes)}
    if not usable:
        return _refused(ask, machine, curves=curves, flagged=mine)
    return from_curves(ask, machine, curves=usable, constants=constants, flagged=mine, hidden=hidden)


def from_curves(
    ask: Ask,
    machine: Machine,
    *,
    curves: Mapping[str, Curve],
    constants: Constants,
    flagged: tuple[Flagged, ...] = (),
    hidden: bool = False,
) -> Prediction:
    """Predict from the curves of the asked series alone; see :func:`predict`.

    Args:
        ask: What is asked; usable.
        machine: The asked device.
        curves: Device of the table to its curve, at least one, with the axes of ``ask``.
        constants: Of the model.
        flagged: Measurements of the series that are in none of the curves.
        hidden: Predict as if the asked shape had not been measured on the asked device.
    """
    place = next(iter(curves.values())).place(ask.axes)
    found = estimate(place, ask.work, machine, family=ask.operator, curves=curves, constants=constants, hidden=hidden)
    if found is None:
        return _refused(ask, machine, curves={}, flagged=flagged)
    return _answer(ask, machine, found, constants=constants, flagged=flagged)


def _unusable(ask: Ask) -> str | None:
    figures = {"flops": ask.work.flops, "moved_bytes": ask.work.moved_bytes, **ask.axes}
    for name, figure in figures.items():
        if not math.isfinite(figure) or figure < 0:
            return f"{name} = {figure} is no size"
    return None if ask.work.moved_bytes > 0 else "a call that moves no bytes has no floor"


def _refused(
    ask: Ask, machine: Machine, *, curves: Mapping[str, Mapping[str, Curve]], flagged: tuple[Flagged, ...]
) -> Prediction:
    if flagged:
        refusal, reason = "all_flagged", f"all measurements of it are faulty: {flagged[0].detail}"
    elif curves:
        refusal = "unseen_shard"
        reason = f"{ask.kernel} was measured, but not at these formats and sizes of the model ({ask.series})"
    else:
        refusal, reason = "other_kernel", f"{ask.kernel} was never measured; the times of another kernel say nothing"
    floor = machine.floor_us(ask.work)
    return Prediction(False, (reason,), refusal=refusal, floor_us=floor, bound=machine.bound(ask.work), flagged=flagged)


def _answer(
    ask: Ask, machine: Machine, found: Estimate, *, constants: Constants, flagged: tuple[Flagged, ...]
) -> Prediction:
    floor = machine.floor_us(ask.work)
    latency = max(found.us, floor)
    spread = constants.spread(found.case, ask.operator)
    low = latency * math.exp(min(-_LEAST, spread.low * found.size))
    high = latency * math.exp(max(_LEAST, spread.high * found.size))
    return Prediction(
        True,
        _reasons(ask, machine, found, flagged=flagged),
        latency_us=latency,
        low_us=max(floor, low),
        high_us=high,
        case=SHOWN.get(found.case, found.case),
        floor_us=floor,
        bound=machine.bound(ask.work),
        source=found.source,
        flagged=flagged,
    )


def _reasons(ask: Ask, machine: Machine, found: Estimate, *, flagged: tuple[Flagged, ...]) -> tuple[str, ...]:
    bend, gap, doubt, _ = found.parts
    said = []
    if found.case in (SAME_DEVICE, OUTSIDE):
        said.append(f"measured on {machine.name} itself" if gap == 0 else f"from other shapes on {machine.name}")
    else:
        said.append(f"carried from {found.source} to {machine.name} by their peaks")
        said.append(f"{machine.bound(ask.work)}-bound there")
    if found.case == OUTSIDE:
        said.append("outside of the measured shapes")
    if found.case == CALIBRATED:
        said.append("corrected by measurements on the target")
    if found.case == CRAMPED:
        said.append(f"{found.source} has less shared memory, so what it is slow at counts less than what is usual")
    if SHOWN.get(found.case, found.case) == GENERATIONS and doubt > 0.5:
        said.append("most of the time is explained by no peak, so it may scale or not")
    if bend > 0.3:
        said.append("the kernel changes its way between the measured shapes")
    if flagged:
        said.append(f"{len(flagged)} faulty measurements left out")
    return tuple(said)


def speed_up(candidate: Prediction, baseline: Prediction) -> SpeedUp | None:
    """Return how much faster a candidate is expected to be than a baseline; None if either cannot be predicted.

    The errors are taken as independent: the widths of the two intervals add up in squares of their logarithms.
    """
    if not (candidate.latency_us and candidate.low_us and candidate.high_us):
        return None
    if not (baseline.latency_us and baseline.low_us and baseline.high_us):
        return None
    ratio = baseline.latency_us / candidate.latency_us
    above, below = math.log(baseline.high_us / baseline.latency_us), math.log(baseline.latency_us / baseline.low_us)
    slower = math.log(candidate.high_us / candidate.latency_us)
    faster = math.log(candidate.latency_us / candidate.low_us)
    return SpeedUp(ratio, ratio * math.exp(-math.hypot(below, slower)), ratio * math.exp(math.hypot(above, faster)))
