"""Negative results that concern a target."""

from __future__ import annotations

from collections.abc import Iterable

from kb import hardware, transfer
from kb.errors import DeviceUnavailableError
from kb.models.plan import Warning_
from kb.planning.matching import concerns, has_use
from kb.planning.values import Known, Wish


def warnings_of(entries: Iterable[Known], wish: Wish) -> list[Warning_]:
    """Return the negative results whose condition holds for a target, or may hold.

    What can be checked is checked: operator, phase, formats, device. The rest of a condition is prose, so the reader
    has to check it: ``holds`` says which.

    Args:
        entries: Of the store.
        wish: The target.

    Returns:
        Warnings, those that certainly hold first, then those on rows with the largest share.
    """
    found = []
    for entry in entries:
        if entry.outcome == "works" or entry.withdrawn is not None:
            continue
        rows = [row for row in wish.rows if concerns(entry, row)]
        if not rows and not _of_the_step(entry, wish):
            continue
        if entry.outcome == "infeasible" and _possible(entry, wish):
            continue
        negative = entry.raw.get("negative") or {}
        weight = sum(row.share or 0.0 for row in rows)
        made = Warning_(
            entry.id,
            entry.title,
            tuple(row.name for row in rows),
            str(negative.get("condition", "")),
            f"{entry.outcome}: {negative.get('effect', '')}",
            "yes" if _seen_there(entry, wish) else "check",
        )
        found.append((made.holds != "yes", -weight, entry.id, made))
    return [one for *_, one in sorted(found, key=lambda one: one[:3])]


def _possible(entry: Known, wish: Wish) -> bool:
    """Tell whether the device has matrix units for all formats of which a result says that they are lacking."""
    dtypes = entry.facts.dtypes
    return bool(dtypes) and not any(transfer.lacks_unit(dtype, wish.scope) for dtype in dtypes)


def _of_the_step(entry: Known, wish: Wish) -> bool:
    if entry.kind != "allocation" or not has_use(entry, wish):
        return False
    return not (entry.phases and wish.phases and not entry.phases & wish.phases)


def _seen_there(entry: Known, wish: Wish) -> bool:
    """Tell whether it was seen on the target's device, or follows from what the device lacks."""
    names = set(wish.scope.device_names)
    if entry.outcome == "infeasible" and entry.facts.dtypes:
        return True  # what is possible there was left out before
    if any(cell["device"] in names and cell["state"] == "holds" for cell in entry.cells):
        return True
    return any(_is_there(str(claim.get("device", "")), names) for claim in entry.raw.get("claims", ()))


def _is_there(device: str, names: set[str]) -> bool:
    if device in names:
        return True
    try:
        return set(hardware.resolve(device).device_names) <= names
    except DeviceUnavailableError:
        return False
