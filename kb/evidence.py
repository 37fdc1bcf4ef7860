"""What stands for an entry: the level of evidence, where, and how fresh; computed, never typed by hand.

Without a record by the judge an entry is ``documented``, or ``reported`` once somebody published a figure for it.
A figure published for one device says nothing about another.
"""

from __future__ import annotations

from collections.abc import Mapping

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.models.facts import Standing
from kb.models.hit import Best
from kb.units import speedup_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kb.hardware import DeviceScope
    from kb.models.facts import Transfer


def standing(
    facts: Mapping[str, Any], *, scope: DeviceScope | None = None, transfer: Transfer | None = None
) -> Standing:
    """Say what stands for an entry, on a device or anywhere.

    Args:
        facts: The plain form of ``entry.toml``.
        scope: The asked device; None asks for the best anywhere.
        transfer: How the entry reaches that device; code that cannot run there is ``infeasible`` there.

    Returns:
        Level, freshness, where the evidence was made, and reasons.
    """
    claims = _claims(facts, None)
    there = _claims(facts, scope)
    freshness = "unknown"
    reasons: tuple[str, ...] = ("no record by the judge yet",)
    if transfer is not None and scope is not None and transfer.kind in ("technique", "none") and _has_code(facts):
        freshness, reasons = "infeasible", transfer.reasons
    if there:
        return Standing("reported", freshness, there[0]["device"], reasons)
    if claims and scope is not None:
        reasons = (*reasons, f"reported on {claims[0]['device']} only")
    if claims and scope is None:
        return Standing("reported", freshness, claims[0]["device"], reasons)
    return Standing("documented", freshness, None, reasons)


def best(facts: Mapping[str, Any], *, scope: DeviceScope | None = None) -> Best | None:
    """Return the figure to show for an entry: one made on the asked device if there is one.

    Args:
        facts: The plain form of ``entry.toml``.
        scope: The asked device, or None.

    Returns:
        The first figure with a comparison, else the first figure, else None. Its device is always named.
    """
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
