"""Numbers with units: how figures are combined and written."""

import math
from collections.abc import Sequence


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """Return the geometric mean of speed-ups, or None of no ratios.

    Args:
        ratios: Positive ratios, baseline over candidate.

    Raises:
        ValueError: A ratio is not positive and finite; a zero would hide every other one.
    """
    if not ratios:
        return None
    if any(not math.isfinite(r) or r <= 0 for r in ratios):
        raise ValueError("every ratio must be positive and finite")
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))


def speedup_of(
    value: float,
    *,
    better: str,
    baseline_value: float | None = None,
    stated: float | None = None,
    gain_percent: float | None = None,
    gain_kind: str | None = None,
) -> float | None:
    """Return baseline time over candidate time from a published comparison.

    Args:
        value: The candidate's figure.
        better: ``higher`` (a rate) or ``lower`` (a time).
        baseline_value: The baseline's figure in the same unit, if it was published.
        stated: The speed-up as published, if it was.
        gain_percent: The gain as published, in percent.
        gain_kind: ``increase`` or ``reduction``.

    Returns:
        Above 1 is faster; None if nothing was compared, or a gain cannot be read as a speed-up.
    """
    if baseline_value is not None:
        return value / baseline_value if better == "higher" else baseline_value / value
    if stated is not None:
        return stated
    if gain_percent is not None and gain_kind == "increase" and better == "higher":
        return 1 + gain_percent / 100
    if gain_percent is not None and gain_kind == "reduction" and better == "lower" and gain_percent < 100:
        return 1 / (1 - gain_percent / 100)
    return None


def format_figure(value: float, unit: str) -> str:
    """Write a figure with at most four significant digits: ``1792`` and ``tokens/s`` give ``1,792 tokens/s``."""
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    if value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}"
    return f"{text} {unit}".strip()
