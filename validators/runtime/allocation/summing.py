"""Figures over all traces of one judgement, computed from those of each: the same for a record that is checked."""

import statistics
from typing import Any


def summary(form: str | None, laws: list[str] | None, figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a record keeps of an allocation judgement.

    Args:
        form: The form in which the candidate came.
        laws: The laws it says it serves; None for all.
        figures: One table a trace.

    Returns:
        ``form``, ``laws``, ``traces``, and over all traces the medians of fragmentation, time of an operation in µs,
        share of capacity in use when memory ran out, and share of padded rows; the median fragmentation of each
        baseline; the largest host and outside bytes.
    """
    found: dict[str, Any] = {"form": form, "laws": laws, "traces": figures}
    for name in ("fragmentation", "us_per_operation", "full_at", "padded"):
        values = [one[name] for one in figures if one.get(name) is not None]
        found[f"median_{name}"] = statistics.median(values) if values else None
    for name in ("host_bytes", "outside_bytes", "peak_bytes"):
        values = [one[name] for one in figures if one.get(name) is not None]
        found[f"most_{name}"] = max(values) if values else None
    others: dict[str, list[float]] = {}
    for one in figures:
        for name, row in (one.get("baselines") or {}).items():
            if row is not None and row.get("fragmentation") is not None:
                others.setdefault(name, []).append(row["fragmentation"])
    found["baselines"] = {name: statistics.median(values) for name, values in others.items()}
    return found
