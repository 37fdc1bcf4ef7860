"""The judge's records as FlashInfer traces: one row for each workload that was timed, with its record's name.

The format's factor is against its own reference, which the judge does not time: those two fields stay 0, which is its
word for nothing. Errors are no differences there but shares of a bound, so both are NaN. What was measured besides
(regime, baseline, shares) goes into ``correctness.extra``, where the format takes anything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kb.config import Root
from kb.errors import EntryFormatError, KbError, StoreError
from kb.importers.base import Filed, Skipped
from kb.service import searching
from kb.store import layout, records

_REGIMES = (("cold", "eager"), ("cold", "graph"), ("warm", "eager"), ("warm", "graph"))
"""Of several timings of one workload the first of these goes out: the format's own benchmark empties the caches."""
WorkloadOf = Callable[[Mapping[str, int]], Mapping[str, Any] | None]
"""Axes as the judge has them → the workload as it goes out; None where its inputs cannot be drawn at random."""


def standing_records(root: Root, entry: Filed) -> tuple[list[tuple[str, dict[str, Any]]], list[Skipped]]:
    """Return the accepted records of an entry's present version that count, newest first, and what was left out.

    Args:
        root: The knowledge base; records count if its catalogue has verified them.
        entry: The entry.
    """
    if not (layout.folder_of(root.entries, entry.id) / layout.RECORDS).is_dir():
        return [], []
    try:
        cells = searching.show_root(root, entry.id)["cells"]
    except KbError as error:
        return [], [Skipped(entry.id, f"its records: {error.message}", refused=False)]
    found: list[tuple[str, dict[str, Any]]] = []
    left_out: list[Skipped] = []
    older = 0
    for path in sorted({path for cell in cells for path in cell["records"]}, reverse=True):
        try:
            raw = records.read_one(root.entries, entry.id, path.rpartition("/")[2]).raw
        except (EntryFormatError, StoreError) as error:
            left_out.append(Skipped(entry.id, error.message, refused=False))
            continue
        if raw["decision"]["verdict"] == "accepted" and raw["entry"]["version"] == entry.version:
            found.append((path, raw))
        else:
            older += raw["entry"]["version"] != entry.version
    if older:
        left_out.append(Skipped(entry.id, f"{older} records of other versions: no traces of this one", refused=False))
    return found, left_out


def trace_rows(
    standing: Sequence[tuple[str, dict[str, Any]]],
    *,
    dtype: str,
    definition: str,
    solution: str,
    workload_of: WorkloadOf,
) -> Iterator[dict[str, Any]]:
    """Yield a trace for each workload and device that was timed in a dtype.

    Args:
        standing: As :func:`standing_records` gives them.
        dtype: Of the workloads.
        definition: Name of the definition.
        solution: Name of the solution.
        workload_of: Makes the workload.
    """
    done: set[tuple[str, str]] = set()
    for path, raw in standing:
        for timing in _ordered(raw.get("timing") or ()):
            asked = timing["workload"]
            workload = workload_of(asked["axes"]) if (asked["dtype"], asked["law"]) == (dtype, "normal") else None
            if workload is None or (str(raw["device"]["name"]), workload["uuid"]) in done:
                continue
            done.add((str(raw["device"]["name"]), workload["uuid"]))
            yield {
                "definition": definition,
                "workload": workload,
                "solution": solution,
                "evaluation": _evaluation(path, raw, timing),
            }


def timed(standing: Sequence[tuple[str, dict[str, Any]]], dtype: str) -> int:
    """Return how many timings of a dtype count."""
    return sum(one["workload"]["dtype"] == dtype for _, raw in standing for one in _ordered(raw.get("timing") or ()))


def _ordered(timings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the timings that count, in the order of their regimes."""
    whole = [one for one in timings if one["quarantined"] is None]
    return sorted(whole, key=lambda one: _REGIMES.index((one["regime"]["cache"], one["regime"]["launch"])))


def _evaluation(path: str, raw: Mapping[str, Any], timing: Mapping[str, Any]) -> dict[str, Any]:
    asked, regime, baseline = timing["workload"], timing["regime"], timing["baseline"]
    shares = [
        case["max_normalised"]
        for case in raw["cases"]
        if (case["axes"], case["dtype"]) == (asked["axes"], asked["dtype"]) and case["max_normalised"] is not None
    ]
    against = (
        {
            "kb_baseline": f"{baseline['name']} {baseline['version']}",
            "kb_baseline_latency_ms": (timing["baseline_us"] or {"median": None})["median"],
            "kb_ratio": timing["ratio"],
        }
        if baseline is not None
        else {}
    )
    if against.get("kb_baseline_latency_ms") is not None:
        against["kb_baseline_latency_ms"] /= 1000
    taken = timing["candidate_us"]
    return {
        "status": "PASSED",
        "environment": {"hardware": str(raw["device"]["name"]), "libs": dict(raw["software"])},
        "timestamp": raw["created_utc"],
        "log": f"kernel-kb record {path}: {regime['cache']} caches, {regime['launch']}, median of {taken['n']}",
        "correctness": {
            "max_relative_error": "NaN",
            "max_absolute_error": "NaN",
            "extra": {
                "kb_record": path,
                "kb_regime": f"{regime['cache']}, {regime['launch']}",
                "kb_worst_error_over_bound": max(shares, default=None),
                **against,
            },
        },
        "performance": {"latency_ms": taken["median"] / 1000, "reference_latency_ms": 0.0, "speedup_factor": 0.0},
    }
