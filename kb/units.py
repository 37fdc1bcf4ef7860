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
