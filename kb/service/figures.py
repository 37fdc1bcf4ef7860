"""The figures of an entry, ready to be drawn: what our judge timed, with axes and floors, and what was published."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kb.config import Root
from kb.errors import EntryFormatError, StoreError
from kb.store import layout, records

MOST_RECORDS = 200
"""Newest records that are read."""


def figures_of(root: Root, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an entry.

    Args:
        root: The knowledge base.
        found: The entry as ``kb.service.searching.show_root`` gives it; only records that its cells name are read,
            because those are the ones that were verified.

    Returns:
        ``timings``: one a workload, regime, device and record, newest record first. Times are microseconds;
        ``floor_us`` is what the machine's measured peaks allow at best, ``roofline`` floor over median, ``ratio``
        baseline over candidate; what was not measured is None. ``peaks``: device to what it delivered in the newest
        record. ``memory``: figures of allocation strategies, bytes and ratios. ``claims``: published figures as the
        entry states them. ``unread``: records that cannot be read.
    """
    names = dict.fromkeys(path for cell in found["cells"] for path in cell["records"])
    newest = sorted(names, key=lambda path: path.rpartition("/")[2], reverse=True)[:MOST_RECORDS]
    timings: list[dict[str, Any]] = []
    peaks: dict[str, Any] = {}
    memory: list[dict[str, Any]] = []
    unread: list[str] = []
    for path in newest:
        entry_id, _, name = path.rpartition(f"/{layout.RECORDS}/")
        try:
            filed = records.read_one(root.entries, entry_id, name)
        except (EntryFormatError, StoreError) as error:
            unread.append(error.message)
            continue
        timings.extend(_timings(path, filed.raw))
        device = filed.raw["device"]
        if (filed.raw.get("memory") or {}).get("figures"):
            memory.append({"record": path, "device": device["name"], **filed.raw["memory"]})
        if device.get("peaks"):
            peaks.setdefault(str(device["name"]), device["peaks"])
    return {
        "id": found["id"],
        "version": found["version"],
        "timings": timings,
        "peaks": peaks,
        "memory": memory,
        "claims": list(found["facts"].get("claims", ())),
        "unread": unread,
    }


def _timings(path: str, raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    essential = {_key(one["workload"]): one for one in raw.get("roofline") or ()}
    for one in _listed(raw.get("timing")):
        workload, taken = one["workload"], one["candidate_us"]
        against = one.get("baseline_us") or {}
        work = essential.get(_key(workload), {})
        yield {
            "record": path,
            "when": raw["created_utc"],
            "version": raw["entry"]["version"],
            "device": raw["device"]["name"],
            "axes": workload["axes"],
            "dtype": workload["dtype"],
            "law": workload["law"],
            "cache": one["regime"]["cache"],
            "launch": one["regime"]["launch"],
            "median_us": taken["median"],
            "p10_us": taken["p10"],
            "p90_us": taken["p90"],
            "baseline": (one.get("baseline") or {}).get("name"),
            "baseline_us": against.get("median"),
            "floor_us": one.get("floor_us"),
            "roofline": one.get("roofline"),
            "bound": one.get("bound"),
            "ratio": one.get("ratio"),
            "interval": one.get("interval"),
            "verdict": one.get("verdict"),
            "quarantined": one.get("quarantined"),
            "flops": work.get("flops"),
            "essential_bytes": work.get("essential_bytes"),
        }


def _listed(timing: object) -> Sequence[Mapping[str, Any]]:
    if isinstance(timing, Mapping):
        return [timing]
    return timing if isinstance(timing, list) else []


def _key(workload: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(sorted(workload["axes"].items())), workload["dtype"]
