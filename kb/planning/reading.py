"""Read target and entries into what planning works with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from kb import evidence, hardware, transfer
from kb.errors import ConfigError
from kb.hardware import DeviceScope
from kb.models.documents import Target, TargetOperator
from kb.planning.values import Known, Size, Tally, Wanted, Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def known_of(row: Mapping[str, Any], today: evidence.Today, tally: Tally) -> Known:
    """Make what planning needs of one row of the catalogue.

    Args:
        row: By column name, JSON parsed.
        today: What evidence is held against.
        tally: What was reported of the entry.
    """
    measured = evidence.measured_on(row["cells"], today)
    return Known(
        id=row["id"],
        version=row["version"],
        digest=row["digest"],
        title=row["title"],
        summary=row["summary"],
        outcome=row["outcome"],
        license=row["license"],
        operator=row["operator"],
        operators=tuple(row["operators"]),
        facts=transfer.facts_of(row["id"], row["facts"], measured_on=measured),
        raw=row["facts"],
        cells=tuple(row["cells"]),
        withdrawn=row["withdrawn"],
        tally=tally,
    )


def store_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of all that a plan is made from: versions, facts, evidence, and names of reported outcomes.

    Args:
        rows: Of the catalogue, in the order of ids.
    """
    state = hashlib.sha256(b"kb-seed-1")
    for row in rows:
        outcomes = [name for name in row["files"] if name.startswith("outcomes/")]
        told = [row["id"], row["version"], row["digest"], row["facts"], row["cells"], row["withdrawn"], outcomes]
        state.update(json.dumps(told, sort_keys=True, ensure_ascii=True).encode("ascii") + b"\n")
    return state.hexdigest()


def scope_of(target: Target, asked: str | None) -> DeviceScope:
    """Return the devices to plan for: the asked one, or all of the target's.

    Args:
        target: As it stands in its entry.
        asked: A device or family instead of the target's own.

    Raises:
        DeviceUnavailableError: A name is not known.
    """
    names = [asked] if asked is not None else list(target.devices)
    scopes = [hardware.resolve(name) for name in names]
    members = {member.name: member for scope in scopes for member in scope.members}
    return DeviceScope(scopes[0].asked if len(scopes) == 1 else " + ".join(names), tuple(members.values()))


def wish_of(
    row: Mapping[str, Any],
    entries: Iterable[Known],
    *,
    device: str | None = None,
    use: str = "commercial",
    today: evidence.Today | None = None,
    store: str = "",
) -> Wish:
    """Read a target.

    Args:
        row: The target's row of the catalogue.
        entries: Of the store; their limits say which sizes matter.
        device: Plan for this device instead.
        use: What for.
        today: Names the toolchain of devices that the judge has seen.
        store: Digest of the store.

    Raises:
        ConfigError: The entry is no target, or its facts are not readable by this version.
        DeviceUnavailableError: A device is not known.
    """
    if not row["facts"].get("target"):
        raise ConfigError(f"{row['id']} is no target", hint="kb list --kind target")
    try:
        target = Target.model_validate(row["facts"]["target"])
    except ValueError as error:
        raise ConfigError(f"{row['id']}: its target cannot be read: {error}", hint="kb check") from error
    scope = scope_of(target, device)
    axes = _limited_axes(entries)
    return Wish(
        id=row["id"],
        version=row["version"],
        title=row["title"],
        model=target.model,
        precision=target.precision,
        scope=scope,
        device_count=target.device_count,
        rows=_apart([_wanted(one, target, axes.get(one.operator, ())) for one in target.operators]),
        phases=frozenset(one.phase for one in target.traffic if one.phase is not None),
        parallelism=target.parallelism,
        toolchain=_toolchain(scope, today or evidence.Today()),
        use=use,
        store=store,
        notes=tuple(_notes(target, scope, device)),
    )


def _limited_axes(entries: Iterable[Known]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for one in entries:
        for operator in one.operators:
            found.setdefault(operator, {}).update(dict.fromkeys((*one.facts.limits, *one.facts.tuned_axes)))
    return {operator: tuple(sorted(axes)) for operator, axes in found.items()}


def _wanted(row: TargetOperator, target: Target, limited: Sequence[str]) -> Wanted:
    names = tuple(dict.fromkeys((*row.axes, *row.per_token, *row.per_sequence, *limited)))
    sizes = []
    for traffic in target.traffic:
        if not row.runs_under(traffic):
            continue
        part = row.shares.get(traffic.name, 0.0) if row.shares else 1.0
        weight = traffic.weight * part
        if weight > 0:
            sizes.append(Size(traffic.name, weight, row.axes_under(traffic, names)))
    return Wanted(
        name=row.name,
        operator=row.operator,
        dtypes=tuple(row.dtypes),
        sizes=tuple(sizes) or (Size("as it stands", 1.0, dict(row.axes)),),
        share=row.share,
        share_from=row.share_from,
        calls_per_step=row.calls_per_step,
        phase=row.phase,
        note=row.note,
    )


def _apart(rows: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Give every row a name of its own, because plans refer to rows by name."""
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        seen[row.name] = seen.get(row.name, 0) + 1
        found.append(row if seen[row.name] == 1 else row.with_(name=f"{row.name} ({seen[row.name]})"))
    return tuple(found)


def _toolchain(scope: DeviceScope, today: evidence.Today) -> dict[str, str]:
    """Return what is installed on the device, if the judge has seen one; several devices may differ."""
    found = [today.toolchains[name] for name in scope.device_names if name in today.toolchains]
    return dict(found[0]) if len(found) == 1 else {}


def _notes(target: Target, scope: DeviceScope, asked: str | None) -> list[str]:
    notes = []
    if asked is not None:
        notes.append(f"planned for {scope.label}; the target itself names {', '.join(target.devices)}")
    if len(scope.members) > 1:
        notes.append(f"{scope.asked} is a family: what is said holds for its weakest member")
    stated = [row for row in target.operators if row.share is not None]
    if target.operators and len(stated) < len(target.operators):
        unstated = len(target.operators) - len(stated)
        notes.append(f"{unstated} of {len(target.operators)} operator rows state no share of time")
    if stated and all(row.share_from == "estimated" for row in stated):
        notes.append("shares of time are estimated, not measured: profile a step before you trust the order")
    if target.share_basis:
        notes.append(f"shares: {target.share_basis}")
    if target.unnamed:
        notes.append(f"{sum(one.share for one in target.unnamed):.1%} of the time is in kernels that no rule names")
    if not target.operators:
        notes.append("the target lists no operators: kb target from-trace makes them from a profile")
    return notes
