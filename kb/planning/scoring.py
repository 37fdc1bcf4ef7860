"""How much an offer is expected to save, and how sure that is.

Saving is Amdahl's: share x (1 - 1/gain) x confidence. Where share or gain is unknown there is no saving to state; the
order of work then follows assumptions, which are the same for all, so that it goes by share and confidence.
"""

from __future__ import annotations

from collections.abc import Mapping

from kb import evidence
from kb.models.facts import Standing
from kb.planning.values import Forecast, Offer, Tally, Wish
from kb.values import Frozen

ASSUMED_GAIN: Mapping[str, float] = {"run": 1.25, "tune": 1.25, "port": 1.25, "technique": 1.05}
"""Role → speed-up that the order of work assumes where nothing is known. No figure of merit, and never shown as one:
an idea touches many rows and changes each of them less than code that replaces it."""

FLOOR = 0.05
"""Least confidence of what can be tried at all: nothing that was reported buries an entry for good."""

PRIOR_STRENGTH = 4.0
"""How many reported uses weigh as much as what the evidence says beforehand."""

EVIDENCE_WEIGHT: Mapping[str, float] = {
    "documented": 0.3, "reported": 0.35, "correct": 0.6, "measured": 0.8, "confirmed": 0.9, "end_to_end": 0.95,
}  # fmt: skip
ELSEWHERE = 0.75
"""Factor on evidence that was made on another device."""
FRESHNESS_WEIGHT: Mapping[str, float] = {"fresh": 1.0, "unknown": 1.0, "stale": 0.7, "refuted": 0.0, "infeasible": 1.0}
TRANSFER_WEIGHT: Mapping[str, float] = {
    "exact": 1.0, "recompile": 0.9, "retune": 0.7, "port": 0.35, "technique": 0.4, "none": 0.0,
}  # fmt: skip
"""What an entry is worth there as it is: code that has to be written anew can fail to arrive."""


class Score(Frozen):
    """What the planner thinks of one offer."""

    standing: Standing
    share: float | None
    share_from: str | None
    gain: float | None
    low: float | None
    high: float | None
    origin: str | None
    confidence: float
    saving: float | None
    priority: float
    latency_us: float | None = None
    floor_us: float | None = None
    notes: tuple[str, ...] = ()


def confidence(offer: Offer, standing: Standing, *, there: bool) -> float:
    """Return how sure it is that an offer helps, 0..1: a Beta posterior whose prior comes from the evidence.

    Args:
        offer: The entry and how it reaches the target.
        standing: What stands for it.
        there: Whether that was shown on the target's device.

    Returns:
        Mean of the posterior, at least ``FLOOR``.
    """
    prior = EVIDENCE_WEIGHT[standing.level] * FRESHNESS_WEIGHT[standing.freshness]
    prior *= TRANSFER_WEIGHT[offer.transfer.kind] * offer.fit * (1.0 if there or not standing.device else ELSEWHERE)
    return max(FLOOR, posterior(prior, offer.entry.tally))


def posterior(prior: float, tally: Tally) -> float:
    """Return the mean of a Beta distribution of the given prior mean after what was reported; a draw counts half."""
    tried = tally.won + tally.neutral + tally.lost
    return (PRIOR_STRENGTH * prior + tally.won + 0.5 * tally.neutral) / (PRIOR_STRENGTH + tried)


def saving_of(share: float, gain: float, sure: float) -> float:
    """Return the expected part of the step that is saved: Amdahl's law for one row, times the confidence.

    Args:
        share: Of the step's time, 0..1.
        gain: Speed-up of that part, above 0; below 1 the saving is negative.
        sure: Confidence, 0..1.
    """
    return share * (1.0 - 1.0 / gain) * sure


def score(offer: Offer, wish: Wish, today: evidence.Today, forecasts: Mapping[tuple[str, str], Forecast]) -> Score:
    """Score one offer.

    Args:
        offer: What is offered.
        wish: The target.
        today: What evidence is held against.
        forecasts: What is expected, by entry id and name of the row.
    """
    entry = offer.entry
    standing = evidence.standing(entry.raw, scope=wish.scope, transfer=offer.transfer, cells=entry.cells, today=today)
    there = standing.device in wish.scope.device_names
    if not there:
        standing = _elsewhere(offer, standing, today)
    sure = confidence(offer, standing, there=there)
    share, share_from = shares_of(offer, wish)
    expected = [(match.row.share, match.part, forecasts.get((entry.id, match.row.name))) for match in offer.matches]
    figures = [one for _, _, one in expected if one is not None]
    gain, low, high, origin = _together(expected)
    saving = None if share is None or gain is None else saving_of(share, gain, sure)
    assumed = share if share is not None else _assumed_share(offer, wish)
    priority = saving if saving is not None else saving_of(assumed, gain or ASSUMED_GAIN[offer.role], sure)
    first = figures[0] if figures else Forecast()
    notes = tuple(dict.fromkeys(one.note for one in figures if one.note))
    return Score(
        standing, share, share_from, gain, low, high, origin, sure, saving, priority,
        first.latency_us, first.floor_us, notes,
    )  # fmt: skip


def _elsewhere(offer: Offer, standing: Standing, today: evidence.Today) -> Standing:
    """Return what stands for an entry on other devices, where nothing stands on the target's."""
    best = evidence.standing(offer.entry.raw, cells=offer.entry.cells, today=today)
    if best.freshness == "refuted" or best.device is None:
        return standing
    freshness = standing.freshness if standing.freshness == "infeasible" else best.freshness
    return Standing(best.level, freshness, best.device, (*standing.reasons, *best.reasons))


def shares_of(offer: Offer, wish: Wish) -> tuple[float | None, str | None]:
    """Return the share of the step's time that an offer concerns, and whether it was measured; None if unknown.

    What concerns the whole step has no share of its own: nobody measured what memory or launches cost.
    """
    del wish
    known = [(match.row, match.part) for match in offer.matches if match.row.share is not None]
    if not known:
        return None, None
    origins = {row.share_from for row, _ in known}
    total = sum((row.share or 0.0) * part for row, part in known)
    return min(1.0, total), "measured" if origins == {"measured"} else "estimated"


def _assumed_share(offer: Offer, wish: Wish) -> float:
    """Return a share to order by where nobody stated one.

    For the whole step that of an average row. For rows an equal part of what the stated shares leave, at least half
    an average row: who did not look cannot call it small.
    """
    average = 1.0 / max(1, len(wish.rows))
    if not offer.matches:
        return average
    unstated = [row for row in wish.rows if row.share is None]
    left = max(0.0, 1.0 - sum(row.share or 0.0 for row in wish.rows))
    each = max(left / len(unstated), average / 2) if unstated else average / 2
    return each * len(offer.matches)


def _together(
    expected: list[tuple[float | None, float, Forecast | None]],
) -> tuple[float | None, float | None, float | None, str | None]:
    """Return gain and interval over all rows of an offer: time before over time after; unknown rows do not change."""
    known = [(share or 1.0, part, one) for share, part, one in expected if one is not None and one.gain is not None]
    if not known:
        return None, None, None, None
    total = sum((share or 1.0) * part for share, part, _ in expected)
    rest = total - sum(share * part for share, part, _ in known)
    ends = []
    for pick in ("gain", "low", "high"):
        after = rest + sum(share * part / (getattr(one, pick) or one.gain or 1.0) for share, part, one in known)
        ends.append(total / after)
    origin = "measured" if rest == 0 and all(one.origin == "measured" for _, _, one in known) else "predicted"
    return ends[0], ends[1], ends[2], origin
