"""What follows from the samples of a timing: figures, interval, noise, verdict, and why a result counts for nothing.

Pure and deterministic: ``recompute(samples)`` gives, figure by figure, what stands in a record, so that a verdict can
be checked from the side file alone. The bootstrap draws from a generator that is seeded with the samples themselves.

The rules, each fixed before anything is measured:

- One sample is one batch: many calls, timed from outside, divided by their number. A block is the median of its
  batches.
- Blocks of candidate and baseline alternate ABBA; a pair of neighbours gives one ratio, baseline over candidate. The
  ratio is the median over pairs, its interval a bootstrap over pairs.
- The noise is the same figure of the baseline against itself, from its own neighbouring blocks.
- The margin is the noise, but never less than ``MARGIN``: two processes with the same code differ by where their
  memory lies, which no comparison inside one process shows. FAST or SLOW only if the whole interval is beyond the
  margin, SAME only if it is within, else AMBIGUOUS. A claim must hold in clock cycles too where the clock is known.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

MARGIN = {"cuda": 0.01, "cpu": 0.03}
"""Least difference that is called one, as a share; a shared CPU is noisier between processes than a GPU."""

MOST_NOISE = {"cuda": 0.03, "cpu": 0.1}
"""Margin beyond which nothing is called the same: everything would be."""

LEAST_PAIRS = 5
"""Pairs of blocks below which nothing is claimed."""

SLOW_CLOCK = 0.75
"""Share of the default clock below which a block does not count (nvbench's default)."""

RESAMPLES = 2000
_LOW, _HIGH = 0.025, 0.975

_LATE_SHARE, _CHARGED_SHARE = 0.05, 0.005
"""Share of a batch that the hand-over of results may take longer than the baseline's: quarantined, charged."""

_CHARGED_US = 15.0
"""What answering for results may take longer than for the baseline's without a charge: processes differ."""

_DISTURBED = {"cuda": 1.15, "cpu": 1.6}
"""Factor by which the baseline may be slower beside the candidate than it was alone, at its best."""

_SLACK_US = {"cuda": 30.0, "cpu": 400.0}
"""What wall clock and device clock may differ by in one batch, over the known cost of launches and of the channel."""

_DRIFT, _OPEN_SHARE = 0.004, 0.05
"""Shares of a batch by which two clocks may run apart, and that may be spent outside of the device's own time."""

Sample = Mapping[str, Any]


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between neighbours.

    Args:
        values: At least one number, in any order.
        share: 0 to 1.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """Return the median of at least one number."""
    return quantile(values, 0.5)


def interval(values: Sequence[float], *, seed: int) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the median.

    Args:
        values: At least one number; one of them gives an interval of no width.
        seed: Of the resampling.
    """
    dice = random.Random(seed)  # noqa: S311 - resampling must be repeatable
    size = len(values)
    medians = [median([values[int(dice.random() * size)] for _ in range(size)]) for _ in range(RESAMPLES)]
    return quantile(medians, _LOW), quantile(medians, _HIGH)


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Return median, p10, p90, min and number of microseconds per call."""
    return {
        "median": _figure(median(values)),
        "p10": _figure(quantile(values, 0.1)),
        "p90": _figure(quantile(values, 0.9)),
        "min": _figure(min(values)),
        "n": len(values),
    }


def self_ratios(blocks: Sequence[float]) -> list[float]:
    """Return the ratios of neighbouring blocks of one side, turned round in every other pair, as ABBA does."""
    return [a / b if turn % 2 == 0 else b / a for turn, (a, b) in enumerate(itertools.pairwise(blocks))]


def noise_of(blocks: Sequence[float], *, seed: int) -> float:
    """Return the half width of the ratio of a side against itself: how far its interval reaches from 1.

    Args:
        blocks: Block medians of the baseline in the order of time, at least two.
        seed: Of the resampling.
    """
    low, high = interval(self_ratios(blocks), seed=seed)
    return max(1 - low, high - 1, 0.0)


def verdict_of(bounds: tuple[float, float], margin: float) -> str:
    """Return FAST, SLOW, SAME or AMBIGUOUS.

    Args:
        bounds: Interval of baseline over candidate.
        margin: Share by which it must clear 1, or within which it must lie.
    """
    low, high = bounds
    if low > 1 + margin:
        return "FAST"
    if high < 1 / (1 + margin):
        return "SLOW"
    return "SAME" if low >= 1 / (1 + margin) and high <= 1 + margin else "AMBIGUOUS"


def recompute(samples: Sample) -> list[dict[str, Any]]:
    """Compute every figure of a record's ``timing`` from its side file.

    Args:
        samples: ``{"schema": 1, "device": "cpu" | "cuda", "results": [raw, …]}``, as ``sessions`` wrote it.

    Returns:
        One timing a result, in order; equal samples give equal timings, to the last digit.

    Raises:
        KeyError, TypeError, ValueError: The samples have another form.
    """
    return [_timing(one, str(samples["device"])) for one in samples["results"]]


def sha256(data: bytes) -> str:
    """Return the digest of bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def written(samples: Sample) -> bytes:
    """Return the bytes of the side file: sorted keys, no blanks, a final newline; a record names their sha256."""
    return (json.dumps(samples, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")


def _timing(raw: Sample, kind: str) -> dict[str, Any]:
    seed = _seed(raw)
    blocks = raw["blocks"]
    charge = _charge(raw)
    valued = [_per_call(one, raw, charge) for one in blocks]
    kept = [_counts(one, raw) for one in blocks]
    pairs = _pairs(blocks, kept)
    own = [value for one, value, keep in zip(blocks, valued, kept, strict=True) if one["who"] == "baseline" and keep]
    ratios = [valued[b] / valued[a] for a, b in pairs]
    bounds = interval(ratios, seed=seed) if ratios else None
    noise = noise_of(own, seed=seed + 1) if len(own) > 1 else None
    floor = raw["floor"]
    walls = {who: _walls(raw, who, charge, kept) for who in ("candidate", "baseline")}
    agree, quarantined = _sound(raw, kind, walls["candidate"])
    middle = median(walls["candidate"])
    return {
        "workload": raw["workload"],
        "regime": raw["regime"],
        "calls_per_batch": raw["calls_per_batch"],
        "slots": raw["slots"],
        "blocks": [_block(one, value, raw) for one, value in zip(blocks, valued, strict=True)],
        "candidate_us": spread(walls["candidate"]),
        "baseline_us": spread(walls["baseline"]),
        "baseline": raw["baseline"],
        "ratio": _figure(median(ratios)) if ratios else None,
        "interval": [_figure(bounds[0]), _figure(bounds[1])] if bounds else None,
        "noise": None if noise is None else _figure(noise),
        "verdict": _verdict(raw, kind, pairs, valued, bounds, noise, seed),
        "floor_us": _figure(floor["us"]),
        "roofline": _figure(floor["us"] / middle),
        "bound": floor["bound"],
        "clocks_agree": agree,
        "quarantined": quarantined,
        "confirms": bool(raw["confirms"]),
    }


def _verdict(
    raw: Sample,
    kind: str,
    pairs: Sequence[tuple[int, int]],
    valued: Sequence[float],
    bounds: tuple[float, float] | None,
    noise: float | None,
    seed: int,
) -> str:
    if bounds is None or noise is None or len(pairs) < LEAST_PAIRS:
        return "AMBIGUOUS"
    margin = max(noise, MARGIN[kind])
    word = verdict_of(bounds, margin)
    if word == "SAME" and margin > MOST_NOISE[kind]:
        return "AMBIGUOUS"
    clocks = [_clock(one) for one in raw["blocks"]]
    if word in ("FAST", "SLOW") and all(clocks[i] for pair in pairs for i in pair):
        cycles = [valued[b] * (clocks[b] or 1) / (valued[a] * (clocks[a] or 1)) for a, b in pairs]
        if verdict_of(interval(cycles, seed=seed + 2), margin) != word:
            return "AMBIGUOUS"
    return word


def _per_call(block: Sample, raw: Sample, charge: float) -> float:
    """Return microseconds per call of one block."""
    return median([_call_us(one, block["who"], raw, charge) for one in block["batches"]])


def _call_us(batch: Sample, who: str, raw: Sample, charge: float) -> float:
    """Return microseconds per call of one batch, by the judge's clock.

    What setting a batch off takes at least is taken off, as the trusted side showed it; a candidate is charged for
    results that came late.
    """
    wall = batch["wall_us"] - min(raw["least_pipe_us"], batch["wall_us"] / 2) + (charge if who == "candidate" else 0.0)
    return float(wall) / float(raw["calls_per_batch"])


def _walls(raw: Sample, who: str, charge: float, kept: Sequence[bool]) -> list[float]:
    chosen = [one for one, keep in zip(raw["blocks"], kept, strict=True) if one["who"] == who and keep]
    chosen = chosen or [one for one in raw["blocks"] if one["who"] == who]
    return [_call_us(b, who, raw, charge) for one in chosen for b in one["batches"]]


def _charge(raw: Sample) -> float:
    """Return what the candidate took longer to answer for its results than the baseline, microseconds a batch.

    A result that is not there yet when ``run`` returns has to be waited for then; so is the time of it.
    """
    mine, theirs = _tails(raw, "candidate"), _tails(raw, "baseline")
    late = median(mine) - median(theirs)
    batch = median([b["wall_us"] for one in raw["blocks"] if one["who"] == "candidate" for b in one["batches"]])
    gap = quantile(mine, 0.25) - quantile(theirs, 0.75)
    # Samples of revision 8 say ``answered_for`` instead of a rule; those without either handed whole results over.
    answered = raw.get("tail_rule") == "spread"
    least = max(_CHARGED_SHARE * batch, _CHARGED_US if answered or raw.get("answered_for") else 0.0)
    wanted = _spread(mine) + _spread(theirs) if answered else 0.0
    return late if late > least and gap > wanted else 0.0


def _spread(values: Sequence[float]) -> float:
    return quantile(values, 0.75) - quantile(values, 0.25)


def _tails(raw: Sample, who: str) -> list[float]:
    return [float(b["tail_us"]) for one in raw["blocks"] if one["who"] == who for b in one["batches"]]


def _clock(block: Sample) -> float | None:
    seen = block["telemetry"]
    return None if seen is None or not seen["sm_mhz"] else float(seen["sm_mhz"])


def _counts(block: Sample, raw: Sample) -> bool:
    """Tell whether a block was run at a clock worth speaking of."""
    clock, default = _clock(block), raw["default_mhz"]
    return clock is None or not default or clock >= SLOW_CLOCK * default


def _pairs(blocks: Sequence[Sample], kept: Sequence[bool]) -> list[tuple[int, int]]:
    """Return (candidate, baseline) indices of neighbours in ABBA order, both of which count."""
    found = []
    for first in range(0, len(blocks) - 1, 2):
        a, b = first, first + 1
        if blocks[a]["who"] == "baseline":
            a, b = b, a
        if blocks[a]["who"] == "candidate" and blocks[b]["who"] == "baseline" and kept[a] and kept[b]:
            found.append((a, b))
    return found


def _block(block: Sample, value: float, raw: Sample) -> dict[str, Any]:
    inside = [one["device_us"] for one in block["batches"] if one["device_us"] is not None]
    device = median(inside) / raw["calls_per_batch"] if inside else None
    return {
        "who": block["who"],
        "wall_us": _figure(value),
        "device_us": _figure(device) if device is not None and device > 0 else None,
        "telemetry": block["telemetry"],
    }


def _sound(raw: Sample, kind: str, walls: Sequence[float]) -> tuple[bool, str | None]:
    """Hold three clocks and the physics against each other; returns agreement, and why a result counts for nothing."""
    reasons = []
    agree = _clocks_agree(raw, kind)
    if not agree:
        reasons.append("clocks_disagree")
    if median(walls) < raw["floor"]["hard_us"] or _inside(raw) < raw["floor"]["hard_us"]:
        reasons.append("below_floor")
    batch = median([b["wall_us"] for one in raw["blocks"] if one["who"] == "candidate" for b in one["batches"]])
    if _charge(raw) > _LATE_SHARE * batch + _SLACK_US[kind]:
        reasons.append("late_results")
    beside = min(b["wall_us"] for one in raw["blocks"] if one["who"] == "baseline" for b in one["batches"])
    if raw["alone_us"] and beside > _DISTURBED[kind] * raw["alone_us"] * raw["calls_per_batch"] + _SLACK_US[kind]:
        reasons.append("baseline_disturbed")
    if raw["sweep_floor_us"] and _least_sweep(raw) < raw["sweep_floor_us"]:
        reasons.append("cache_not_cold")
    return agree, reasons[0] if reasons else None


def _inside(raw: Sample) -> float:
    """Return the candidate's device time per call, or infinity where there is none."""
    found = [b["device_us"] for one in raw["blocks"] if one["who"] == "candidate" for b in one["batches"]]
    known = [one for one in found if one is not None]
    return median(known) / float(raw["calls_per_batch"]) if known else float("inf")


def _least_sweep(raw: Sample) -> float:
    found = [b["sweep_us"] for one in raw["blocks"] for b in one["batches"] if b["sweep_us"] is not None]
    return min(found) if found else float("inf")


def _clocks_agree(raw: Sample, kind: str) -> bool:
    """Compare the judge's clock with the worker's own: inside time fits into outside time, and leaves little over."""
    allowed = raw["launch_us"] * raw["calls_per_batch"] + 2 * raw["pipe_us"] + _SLACK_US[kind]
    rows = [b for one in raw["blocks"] if one["who"] == "candidate" for b in one["batches"]]
    gaps = [(b["wall_us"] - b["device_us"], b["wall_us"]) for b in rows if b["device_us"] is not None]
    if not gaps:
        return True
    # A forger's gap is there in every batch, a busy machine's is not.
    fits = quantile([gap - _OPEN_SHARE * wall for gap, wall in gaps], 0.25) <= allowed
    return fits and all(gap >= -(_DRIFT * wall + 2) for gap, wall in gaps)


def _figure(value: float) -> float:
    """Round to seven significant digits: what a record holds, and no more."""
    return float(f"{value:.7g}")


def _seed(raw: Sample) -> int:
    text = json.dumps(raw["blocks"], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
