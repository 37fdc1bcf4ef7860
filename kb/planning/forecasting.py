"""What is expected of entries on the target's device, from what the judge measured elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.planning.values import Forecast, Known, Size, Wanted, Wish
from kb.prediction import Ask, Prediction, Sample, Work, predict, speed_up, split_axes
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BASELINE = "baseline: "


class Measured(Frozen):
    """Times of one entry and of what it was timed against, as its records have them."""

    entry: str
    candidate: tuple[Sample, ...] = ()
    baselines: tuple[Sample, ...] = ()


def measured_of(entry: Known, records: Iterable[Mapping[str, Any]]) -> Measured:
    """Read the times that count out of an entry's records.

    Args:
        entry: The entry as it is now; times of other code are left out.
        records: Plain form of records that verify.
    """
    mine: list[Sample] = []
    others: list[Sample] = []
    for record in records:
        if record["entry"]["digest"] != entry.digest or record["decision"]["verdict"] != "accepted":
            continue
        works = {_key(one["workload"]): one for one in record.get("roofline") or ()}
        for timing in record.get("timing") or ():
            work = works.get(_key(timing["workload"]))
            if work is None or timing["quarantined"] is not None or not timing["clocks_agree"]:
                continue
            made = _sample(record, timing, work, entry.id, timing["candidate_us"])
            mine.append(made)
            baseline = timing["baseline"]
            if baseline is not None and timing["baseline_us"] is not None:
                name = f"{_BASELINE}{baseline['name']} {baseline['version']}"
                others.append(_sample(record, timing, work, name, timing["baseline_us"]))
    return Measured(entry.id, tuple(mine), tuple(others))


def _key(workload: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, int], ...]]:
    return str(workload["dtype"]), tuple(sorted(workload["axes"].items()))


def _sample(
    record: Mapping[str, Any], timing: Mapping[str, Any], work: Mapping[str, Any], kernel: str, taken: Mapping[str, Any]
) -> Sample:
    dtype = str(timing["workload"]["dtype"])
    regime = timing["regime"]
    series, axes = split_axes(timing["workload"]["axes"], dtype, regime["cache"], regime["launch"])
    return Sample(
        device=str(record["device"]["name"]),
        operator=str(record["operator"]["name"]),
        kernel=kernel,
        series=series,
        axes=axes,
        work=Work(float(work["flops"]), float(work["essential_bytes"]), dtype),
        latency_us=float(taken["median"]),
    )


def forecast(measured: Measured, row: Wanted, wish: Wish, work: Work, axes: Mapping[str, int]) -> Forecast:
    """Say what is expected of an entry on one row of the target.

    Args:
        measured: Its times.
        row: The operator row.
        wish: The target.
        work: Of one call at ``axes``.
        axes: All axes of the operator.

    Returns:
        Speed-up over the fastest baseline with its interval, and latency; None where they cannot be predicted, with
        the reason.
    """
    best: Forecast | None = None
    first: Forecast | None = None
    for regime in (("cold", "graph"), ("cold", "eager"), ("warm", "graph"), ("warm", "eager")):
        series, sizes = split_axes(axes, work.dtype, *regime)
        ask = Ask(wish.scope.asked, row.operator, measured.entry, series, sizes, work)
        mine = predict(ask, measured.candidate)
        found = _against(mine, ask, measured, wish)
        first = first or found
        if found.gain is not None:
            best = found
            break
    return best or first or Forecast()


def _against(mine: Prediction, ask: Ask, measured: Measured, wish: Wish) -> Forecast:
    if not mine.predictable:
        return Forecast(floor_us=mine.floor_us, note=f"no prediction: {mine.reasons[0]}")
    names = sorted({one.kernel for one in measured.baselines})
    theirs = [predict(ask.with_(kernel=name), measured.baselines) for name in names]
    known = [one for one in theirs if one.latency_us is not None]
    if not known:
        return Forecast(latency_us=mine.latency_us, floor_us=mine.floor_us)
    fastest = min(known, key=lambda one: one.latency_us or 0.0)
    ratio = speed_up(mine, fastest)
    if ratio is None:
        return Forecast(latency_us=mine.latency_us, floor_us=mine.floor_us)
    origin = "measured" if _was_measured(ask, measured.candidate, wish) else "predicted"
    note = f"latency from measurements on {mine.source}" if origin == "predicted" and mine.source else None
    return Forecast(ratio.ratio, ratio.low, ratio.high, origin, mine.latency_us, mine.floor_us, note)


def _was_measured(ask: Ask, samples: Sequence[Sample], wish: Wish) -> bool:
    return any(
        one.series == ask.series and dict(one.axes) == dict(ask.axes) and _is_there(one.device, wish) for one in samples
    )


def _is_there(device: str, wish: Wish) -> bool:
    try:
        return set(hardware.resolve(device).device_names) <= set(wish.scope.device_names)
    except DeviceUnavailableError:
        return False


def heaviest(row: Wanted) -> Size:
    """Return the size of a row that takes most of its time."""
    return max(row.sizes, key=lambda size: (size.weight, size.traffic))
