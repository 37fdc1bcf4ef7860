"""What stands for an entry: the level of evidence, where, and how fresh; computed, never typed by hand.

Records were turned into cells when they were indexed (:mod:`kb.cells`); here cells are held against the toolchain and
the day they are asked for. Without a record by the judge an entry is ``documented``, or ``reported`` once somebody
published a figure for it. A figure for one device says nothing about another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence

from kb import catalogue, hardware
from kb.errors import DeviceUnavailableError, IndexStaleError
from kb.models.facts import Standing
from kb.models.hit import Best
from kb.models.vocabulary import EVIDENCE
from kb.units import speedup_of
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from kb.hardware import DeviceScope
    from kb.models.facts import Transfer

NO_RECORD = "no record by the judge yet"

_MEASURED = EVIDENCE.index("measured")
_WEIGHT: Mapping[str, int] = {"stale": 0, "unknown": 1, "refuted": 2, "fresh": 3}
"""What is said first of an entry where its cells disagree: proof that holds, then what speaks against it."""
_DAY_S = 86_400


class Today(Frozen):
    """What evidence is held against: the toolchain of each device, and the age from which times are too old."""

    toolchains: Mapping[str, Mapping[str, str]] = {}
    """Device to component to version, as :mod:`kb.toolchain` cuts them; what is missing is not held against."""
    timed_since: str | None = None
    """ISO 8601 in UTC; times taken before that are stale. None for no limit."""


def read_today(toolchains: str | None, timing_days: str | None, *, now: float | None = None) -> Today:
    """Make it out of what the catalogue keeps.

    Args:
        toolchains: JSON of device to versions, or None.
        timing_days: Days after which times are stale; None, empty or 0 for no limit.
        now: Seconds since the epoch; the clock if None.

    Raises:
        ValueError: One of the texts is damaged.
    """
    days = float(timing_days or 0)
    since = None
    if days > 0:
        begin = (time.time() if now is None else now) - days * _DAY_S
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(0.0, begin)))
    return Today(json.loads(toolchains) if toolchains else {}, since)


def today_of(connection: sqlite3.Connection) -> Today:
    """Return what the cells of a catalogue are held against.

    Raises:
        IndexStaleError: The catalogue is damaged.
    """
    try:
        return read_today(catalogue.read_meta(connection, "toolchains"), catalogue.read_meta(connection, "timing_days"))
    except ValueError as error:
        raise IndexStaleError(f"the catalogue is damaged: {error}", hint="kb index --rebuild") from error


def freshness(cell: Mapping[str, Any], today: Today) -> tuple[str, tuple[str, ...]]:
    """Say how fresh a cell is, with the reasons.

    Args:
        cell: As :mod:`kb.cells` describes it.
        today: What it is held against.

    Returns:
        ``fresh``, ``stale``, ``refuted``, or ``unknown`` where the latest run needs review. What was rejected in
        another version or against another meaning is stale: it says nothing of today's.
    """
    state, stale, notes = cell["state"], list(cell["stale"]), tuple(cell["notes"])
    versions = cell["versions"]
    there = today.toolchains.get(cell["device"], {})
    if state == "holds":
        for component in cell["pins"]:
            now = there.get(component)
            if now is not None and now != versions[component]:
                stale.append(f"{component} {versions[component]} → {now}")
        if cell["regime"] is not None and today.timed_since is not None and cell["when"] < today.timed_since:
            stale.append(f"timed on {cell['when'][:10]}, longer ago than the limit")
    if stale:
        return "stale", (*stale, *notes)
    return {"holds": "fresh", "review": "unknown"}.get(state, "refuted"), notes


def live(cells: Iterable[Mapping[str, Any]], today: Today) -> list[tuple[Mapping[str, Any], str, tuple[str, ...]]]:
    """Return cells with freshness and reasons, without the stale ones that a fresh one has replaced since.

    Args:
        cells: Of one entry.
        today: What they are held against.
    """
    held = [(cell, *freshness(cell, today)) for cell in cells]
    fresh = {(cell["device"], cell["regime"]) for cell, how, _ in held if how == "fresh"}
    return [
        (cell, how, reasons)
        for cell, how, reasons in held
        if how != "stale" or (cell["device"], cell["regime"]) not in fresh
    ]


def standing(
    facts: Mapping[str, Any],
    *,
    scope: DeviceScope | None = None,
    transfer: Transfer | None = None,
    cells: Sequence[Mapping[str, Any]] = (),
    today: Today | None = None,
) -> Standing:
    """Say what stands for an entry, on a device or anywhere.

    Args:
        facts: The plain form of ``entry.toml``.
        scope: The asked device; None asks for the best anywhere.
        transfer: How the entry reaches that device; code that cannot run there is ``infeasible`` there.
        cells: What its records prove.
        today: What they are held against; None for nothing.

    Returns:
        Level, freshness, where the evidence was made, and reasons. Fresh evidence goes before a higher level that is
        stale; what holds somewhere before what was refuted elsewhere, which the reasons name.
    """
    reported = _reported(facts, scope=scope, transfer=transfer)
    there = [cell for cell in cells if scope is None or cell["device"] in scope.device_names]
    if not there:
        if cells and reported.freshness == "unknown":
            others = ", ".join(dict.fromkeys(cell["device"] for cell in cells))
            reasons = tuple(one for one in reported.reasons if one != NO_RECORD)
            return reported.with_(reasons=(f"no record there; the judge's records are of {others}", *reasons))
        return reported
    return _first(_by_device(there, today or Today()), reported)


def _by_device(
    cells: Iterable[Mapping[str, Any]], today: Today
) -> dict[str, list[tuple[tuple[int, int], Mapping[str, Any], str, tuple[str, ...]]]]:
    """Return the cells of each device with their weight, freshness and reasons, weightiest first."""
    found: dict[str, list[tuple[tuple[int, int], Mapping[str, Any], str, tuple[str, ...]]]] = {}
    for cell in cells:
        how, reasons = freshness(cell, today)
        weight = (_WEIGHT[how], EVIDENCE.index(cell["level"]))
        found.setdefault(cell["device"], []).append((weight, cell, how, reasons))
    for rows in found.values():
        rows.sort(key=lambda row: row[0], reverse=True)
    return found


def _first(
    devices: Mapping[str, Sequence[tuple[tuple[int, int], Mapping[str, Any], str, tuple[str, ...]]]], reported: Standing
) -> Standing:
    heads = sorted((rows[0] for rows in devices.values()), key=lambda row: row[0], reverse=True)
    _, cell, how, reasons = heads[0]
    more = [
        f"{other['level']} ({other['regime']}) is stale: {why[0]}"
        for _, other, kind, why in devices[cell["device"]]
        if how == "fresh" and kind == "stale" and other["same_code"] and _above(other["level"], cell["level"])
    ]
    more += [f"refuted on {other['device']}: {why[0]}" for _, other, kind, why in heads[1:] if kind == "refuted"]
    level = cell["level"] if cell["state"] == "holds" else "documented"
    if not _above(level, "reported") and reported.level == "reported":
        return Standing("reported", how, reported.device, (*reasons, *more))
    return Standing(level, how, cell["device"], (*reasons, *more))


def _above(level: str, other: str) -> bool:
    return EVIDENCE.index(level) > EVIDENCE.index(other)


def _reported(facts: Mapping[str, Any], *, scope: DeviceScope | None, transfer: Transfer | None) -> Standing:
    """Say what stands without any record."""
    claims = _claims(facts, None)
    there = _claims(facts, scope)
    how = "unknown"
    reasons: tuple[str, ...] = (NO_RECORD,)
    if transfer is not None and scope is not None and transfer.kind in ("technique", "none") and _has_code(facts):
        how, reasons = "infeasible", transfer.reasons
    if there:
        return Standing("reported", how, there[0]["device"], reasons)
    if claims and scope is not None:
        reasons = (*reasons, f"reported on {claims[0]['device']} only")
    return Standing("documented", how, None, reasons)


def measured_on(cells: Iterable[Mapping[str, Any]], today: Today | None = None) -> tuple[str, ...]:
    """Return the devices on which the code as it is now was measured and is not refuted."""
    found: dict[str, None] = {}
    for cell in cells:
        if cell["same_code"] and cell["state"] == "holds" and EVIDENCE.index(cell["level"]) >= _MEASURED:
            how, _ = freshness(cell, today or Today())
            if how in ("fresh", "stale"):
                found[cell["device"]] = None
    return tuple(found)


def best(
    facts: Mapping[str, Any],
    *,
    scope: DeviceScope | None = None,
    cells: Sequence[Mapping[str, Any]] = (),
    today: Today | None = None,
) -> Best | None:
    """Return the figure to show for an entry: one that our judge measured on the asked device before one published.

    Args:
        facts: The plain form of ``entry.toml``.
        scope: The asked device, or None. A measured figure is of that device or is not shown.
        cells: What the entry's records prove.
        today: What they are held against; None for nothing.

    Returns:
        The measured figure that is freshest, best confirmed and surest to be fastest; else a published one, first one
        of the asked device, then one with a comparison; else None. Its device is always named.
    """
    measured = _measured(cells, scope, today or Today())
    if measured is not None:
        return measured
    ranked = sorted(
        _claims(facts, None),
        key=lambda claim: (scope is not None and not _made_on(claim, scope), _speedup(claim) is None),
    )
    if not ranked:
        return None
    claim = ranked[0]
    return Best(
        metric=claim["metric"],
        value=float(claim["value"]),
        unit=claim["unit"],
        device=claim["device"],
        baseline=claim.get("baseline"),
        speedup=_speedup(claim),
        workload=claim["workload"],
        roofline=None,
        source=claim["source"],
    )


def _measured(cells: Sequence[Mapping[str, Any]], scope: DeviceScope | None, today: Today) -> Best | None:
    """Return the best figure of the code as it is now, refuted ones left out."""
    found = []
    for cell in cells:
        if not cell["figures"] or not cell["same_code"] or (scope and cell["device"] not in scope.device_names):
            continue
        how, reasons = freshness(cell, today)
        if how in ("fresh", "stale"):
            for figure in cell["figures"]:
                sure = (figure["interval"] or [0.0])[0]
                weight = (how == "fresh", EVIDENCE.index(cell["level"]), sure, figure["ratio"])
                found.append((weight, cell, figure, reasons[0] if how == "stale" else None))
    if not found:
        return None
    _, cell, figure, stale = max(found, key=lambda one: one[0])
    version = figure["baseline_version"]
    return Best(
        metric="latency_us",
        value=figure["median_us"],
        unit="us",
        device=cell["device"],
        baseline=figure["baseline"] + (f" ({version})" if version else ""),
        speedup=round(figure["ratio"], 3),
        workload=figure["workload"],
        roofline=figure["roofline"],
        regime=cell["regime"],
        interval=tuple(figure["interval"]) if figure["interval"] else None,
        stale=stale,
    )


def gain(
    cells: Sequence[Mapping[str, Any]], *, scope: DeviceScope | None = None, today: Today | None = None
) -> float | None:
    """Return the speed-up of the measured figure that :func:`best` shows; None where nothing was measured."""
    figure = _measured(cells, scope, today or Today()) if cells else None
    return None if figure is None else figure.speedup


def shown(cells: Iterable[Mapping[str, Any]], today: Today) -> list[dict[str, Any]]:
    """Return cells as a person or a script reads them: with freshness and reasons, without what these came from."""
    found = []
    for cell in cells:
        how, reasons = freshness(cell, today)
        names = ("device", "arch", "regime", "level", "when", "version", "records", "figures", "versions")
        found.append({**{name: cell[name] for name in names}, "freshness": how, "reasons": list(reasons)})
    return found


def _claims(facts: Mapping[str, Any], scope: DeviceScope | None) -> list[Mapping[str, Any]]:
    claims: list[Mapping[str, Any]] = list(facts.get("claims", ()))
    return claims if scope is None else [claim for claim in claims if _made_on(claim, scope)]


def _made_on(claim: Mapping[str, Any], scope: DeviceScope) -> bool:
    """Tell whether a figure was made on the asked device.

    A source that names only a family (``NVIDIA H100``) speaks of some member of it: evidence for the family that was
    asked for, none for one of its members.
    """
    device = claim["device"]
    if device in scope.device_names:
        return True
    if len(scope.members) == 1:
        return False
    try:
        named = hardware.resolve(device)
    except DeviceUnavailableError:
        return False
    return set(named.device_names) <= set(scope.device_names)


def _has_code(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("entry_point"))


def _speedup(claim: Mapping[str, Any]) -> float | None:
    """Return the claim's speed-up; its arithmetic was checked when the entry was loaded."""
    ratio = speedup_of(
        claim["value"],
        better=claim["better"],
        baseline_value=claim.get("baseline_value"),
        stated=claim.get("speedup"),
        gain_percent=claim.get("gain_percent"),
        gain_kind=claim.get("gain_kind"),
    )
    return None if ratio is None else round(ratio, 3)
