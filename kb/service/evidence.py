"""All that is proven of one entry: every cell, with its records, figures, freshness and the next step."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb import evidence, hardware, transfer
from kb.config import Root
from kb.hardware import DeviceScope
from kb.models.facts import EntryFacts, Standing
from kb.retrieval import browse
from kb.service import proving
from kb.service.indexing import ask


@dataclass(frozen=True)
class Line:
    """What stands for an entry on one device, under one toolchain, in one regime."""

    device: str
    regime: str | None
    """``cold, eager`` and the like; None for values alone."""
    level: str
    freshness: str
    reasons: tuple[str, ...]
    when: str | None
    """Of the newest record, ISO 8601; None without one."""
    version: int | None
    """Of the entry, when it was judged."""
    toolchain: Mapping[str, str]
    records: tuple[str, ...]
    """Paths below ``entries/``, newest first."""
    figures: tuple[Mapping[str, Any], ...]
    transfer: str | None
    """How the entry reaches the device; None where the hardware table does not know it."""
    next_step: str | None


@dataclass(frozen=True)
class Proven:
    """What is proven of one entry."""

    id: str
    version: int
    title: str
    withdrawn: str | None
    """Date and reason."""
    lines: tuple[Line, ...]
    ignored: tuple[str, ...]
    """Records that count for nothing: path and why."""
    against: Mapping[str, Mapping[str, str]]
    """Device → the toolchain that its evidence is held against."""


def proven(root: Root, reference: str, *, device: str | None = None) -> Proven:
    """Say what is proven of an entry.

    Args:
        root: The knowledge base.
        reference: Its id, or a slug that only one entry has.
        device: Only on this device or family; None for all that have records or published figures.

    Raises:
        DeviceUnavailableError: The name is not known; the hint names the nearest.
        EntryNotFoundError: There is no such entry.
    """
    scope = None if device is None else hardware.resolve(device)

    def read(connection: sqlite3.Connection) -> tuple[dict[str, Any], evidence.Today]:
        return browse.raw(connection, reference), evidence.today_of(connection)

    found, today = ask(root, read)
    own = proving.own_devices()
    lines = [*_of_cells(found, scope, today, own), *_without_cells(found, scope, today, own)]
    return Proven(
        found["id"],
        found["version"],
        found["title"],
        found["withdrawn"],
        tuple(lines),
        tuple(found["ignored"]),
        {line.device: today.toolchains.get(line.device, {}) for line in lines if line.records},
    )


def _of_cells(
    found: Mapping[str, Any], scope: DeviceScope | None, today: evidence.Today, own: Sequence[str]
) -> list[Line]:
    facts = transfer.facts_of(found["id"], found["facts"], measured_on=evidence.measured_on(found["cells"], today))
    lines = []
    live = [cell for cell, _, _ in evidence.live(found["cells"], today)]
    for cell in found["cells"]:
        if scope is not None and cell["device"] not in scope.device_names:
            continue
        how, reasons = evidence.freshness(cell, today)
        # What a later run has replaced needs nothing any more.
        wanted = any(cell is one for one in live)
        step = next_step(found, level=cell["level"], freshness=how, device=cell["device"], own=own) if wanted else None
        lines.append(
            Line(
                cell["device"],
                cell["regime"],
                cell["level"],
                how,
                reasons,
                cell["when"],
                cell["version"],
                cell["versions"],
                tuple(cell["records"]),
                tuple(cell["figures"]),
                _reach(facts, cell["device"]),
                step,
            )
        )
    return lines


def _reach(facts: EntryFacts, device: str) -> str | None:
    known = {name: each for each in hardware.devices() for name in each.device_names}
    if device not in known:
        return None
    return transfer.assess(facts, DeviceScope(device, (known[device],))).kind


def _without_cells(
    found: Mapping[str, Any], scope: DeviceScope | None, today: evidence.Today, own: Sequence[str]
) -> list[Line]:
    """Say what stands where no record is: on the asked device, or wherever a figure was published."""
    having = {cell["device"] for cell in found["cells"]}
    if scope is not None:
        if having & set(scope.device_names):
            return []
        reached = transfer.assess(transfer.facts_of(found["id"], found["facts"]), scope)
        stands = evidence.standing(found["facts"], scope=scope, transfer=reached, cells=found["cells"], today=today)
        return [_bare(found, scope.label, stands, reached.kind, own)]
    claimed = [one for one in dict.fromkeys(c["device"] for c in found["facts"].get("claims", ())) if one not in having]
    stands = evidence.standing(found["facts"])
    lines = [_bare(found, one, Standing("reported", "unknown", one, stands.reasons), None, own) for one in claimed]
    if not lines and not having:
        lines.append(_bare(found, "anywhere", stands, None, own))
    return lines


def _bare(found: Mapping[str, Any], device: str, stands: Standing, reach: str | None, own: Sequence[str]) -> Line:
    step = next_step(found, level=stands.level, freshness=stands.freshness, device=device, own=own)
    return Line(
        device, None, stands.level, stands.freshness, stands.reasons, None, None, {}, (), (), reach, step
    )  # fmt: skip


def next_step(found: Mapping[str, Any], *, level: str, freshness: str, device: str, own: Sequence[str]) -> str | None:
    """Say what would raise or restore a piece of evidence, or None.

    Args:
        found: The entry, as the catalogue has it.
        level: Of the evidence.
        freshness: Of the evidence.
        device: Where it was made, or is wanted.
        own: Names of this machine's own devices.
    """
    entry_id = found["id"]
    if found["withdrawn"] is not None:
        return None
    if freshness == "infeasible":
        return "port it, or carry over its idea: its code cannot run there"
    if found["kind"] == "combination":
        return f"kb judge-model: the original weights decide on {entry_id}" if level != "end_to_end" else None
    if not found["facts"].get("entry_point"):
        return "it has no code to judge; its figures need a source"
    if freshness == "refuted":
        return "mend the code and raise its version, or withdraw the entry with the reason"
    timed = level in ("correct", "measured", "confirmed")
    here = f"kb validate {entry_id}" + ("" if device in ("cpu", "anywhere") else " --device cuda:0")
    here += " --timing" if timed and device == "cpu" else ""
    there = f"kb bundle {entry_id} -o job.pyz{' --timing' if timed else ''}"
    again = here if device in (*own, "anywhere") else f"{there}; python job.pyz on {device}; kb accept what it writes"
    if freshness == "unknown" and level == "documented" and found["cells"]:
        return f"read the findings of the latest record; then {again}"
    steps = {
        "documented": again,
        "reported": again,
        "correct": _after_correct(found, device, again),
        "measured": f"an hour later, after a restart, or on another device of its kind: {again}",
        "confirmed": "use it in a combination, and have the whole model judged: kb judge-model",
    }
    return again if freshness == "stale" else steps.get(level)


def _after_correct(found: Mapping[str, Any], device: str, again: str) -> str:
    if device == "cpu" and found["facts"].get("language") != "torch":
        return f"a CPU tells values, never speed: kb bundle {found['id']} -o job.pyz --timing, for a GPU"
    return f"have it timed against a baseline: {again}"
