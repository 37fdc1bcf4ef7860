"""Make the plan of a target: offers, conflicts, order, coverage, gaps, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kb import evidence, transfer
from kb.models.plan import Coverage, Excluded, Gap, Plan, PlanRow
from kb.models.vocabulary import TRANSFER
from kb.planning import contracts, licensing
from kb.planning.matching import concerns, offers_of
from kb.planning.scoring import Score, score
from kb.planning.values import Forecast, Known, Offer, Wanted, Wish
from kb.planning.warning import warnings_of
from kb.transfer import Asked

ALTERNATIVES = 3
"""Most entries of one kind and topic that serve the whole step, such as allocators, of which one is chosen."""

ROW_ALTERNATIVES = 4
"""Most entries of one kind that serve an operator row: an import can bring thousands of tuned parameters."""

_RUNS = ("run", "tune")

Scored = tuple[Offer, Score]


def make_plan(
    entries: Sequence[Known],
    wish: Wish,
    *,
    today: evidence.Today,
    forecasts: Mapping[tuple[str, str], Forecast] | None = None,
) -> Plan:
    """Plan a target.

    Args:
        entries: All entries of the store.
        wish: The target.
        today: What evidence is held against.
        forecasts: What is expected, by entry id and name of the row; what is missing is unknown.

    Returns:
        The plan, without a brief. Its order does not depend on that of ``entries``.
    """
    by_id = {one.id: one for one in sorted(entries, key=lambda one: one.id)}
    excluded: list[Excluded] = []
    scored = _scored(by_id, wish, today, forecasts or {}, excluded)
    combinations = [one for one in by_id.values() if one.kind == "combination" and one.outcome == "works"]
    ranked = sorted(scored, key=lambda one: _rank_key(one, combinations))
    scores = {(offer.entry.id, offer.transfer.kind): found for offer, found in ranked}
    few = _few([offer for offer, _ in ranked], excluded)
    kept, dropped = contracts.resolve(few, combinations)
    excluded += [Excluded(offer.entry.id, "conflict", reason) for offer, reason in dropped]
    ordered = contracts.in_order(kept)
    rows = []
    for rank, offer in enumerate(ordered, 1):
        found = scores[(offer.entry.id, offer.transfer.kind)]
        notes = (*_notes(offer, found), *contracts.reconciled(offer, kept, combinations), *_open_tokens(offer, kept))
        rows.append(_row(rank, offer, found, notes))
    return Plan(
        target=wish.id,
        version=wish.version,
        title=wish.title,
        model=wish.model,
        device=wish.scope.label,
        device_count=wish.device_count,
        precision=wish.precision,
        use=wish.use,
        store=wish.store,
        rows=tuple(rows),
        gaps=tuple(_gaps(by_id.values(), wish, ordered, excluded)),
        warnings=tuple(warnings_of(by_id.values(), wish)),
        excluded=tuple(sorted(excluded, key=lambda one: (one.because, one.id))),
        coverage=tuple(_coverage(row, ordered) for row in wish.rows),
        notes=(*wish.notes, *_campaigns(by_id.values(), wish)),
    )


def _without_idle_ports(offers: Iterable[Offer], excluded: list[Excluded]) -> list[Offer]:
    """Leave out code that would have to be written anew for rows that other code serves as it is."""
    offers = list(offers)
    served: dict[str, str] = {}
    for offer in sorted(offers, key=lambda one: one.entry.id):
        for match in offer.matches:
            if _runs(offer, match.row):
                served.setdefault(match.row.name, offer.entry.id)
    found = []
    for offer in offers:
        idle = offer.entry.kind == "kernel" and offer.role in ("port", "technique")
        left = tuple(match for match in offer.matches if not (idle and match.row.name in served))
        if left or not offer.matches:
            found.append(offer.with_(matches=left, transfer=left[0].transfer if left else offer.transfer))
        else:
            there = ", ".join(dict.fromkeys(served[match.row.name] for match in offer.matches))
            reason = f"{'; '.join(dict.fromkeys(offer.transfer.reasons))}; {there} runs there"
            excluded.append(Excluded(offer.entry.id, "alternative", reason))
    return found


def _scored(
    by_id: Mapping[str, Known],
    wish: Wish,
    today: evidence.Today,
    forecasts: Mapping[tuple[str, str], Forecast],
    excluded: list[Excluded],
) -> list[Scored]:
    offers: list[Offer] = []
    for entry in by_id.values():
        if entry.outcome != "works" or entry.withdrawn is not None:
            continue
        here = offers_of(entry, wish, by_id)
        refused = licensing.refusal(entry.license, entry.raw.get("restrictions", ()), use=wish.use) if here else None
        if refused is None:
            offers.extend(here)
        else:
            excluded.append(Excluded(entry.id, "license", refused))
    found = []
    for offer in _without_idle_ports(offers, excluded):
        made = score(offer, wish, today, forecasts)
        why = _unfit(offer, made)
        if why is None:
            found.append((offer, made))
        else:
            excluded.append(Excluded(offer.entry.id, *why))
    return found


def _unfit(offer: Offer, made: Score) -> tuple[str, str] | None:
    """Say why an offer is none, as what and in which words."""
    if offer.transfer.kind == "none":
        return "devices", "; ".join(offer.transfer.reasons)
    if made.standing.freshness == "refuted":
        return "refuted", "; ".join(made.standing.reasons) or "the judge rejected it there"
    if made.saving is not None and made.saving < 0 and made.high is not None and made.high < 1:
        return "slower", f"expected at {made.gain:.2f} x its baseline's speed there, at most {made.high:.2f}"
    return None


def _rank_key(one: Scored, combinations: Iterable[Known]) -> tuple[float, int, int, str]:
    offer, made = one
    used = sum(offer.entry.id in each.uses for each in combinations)
    # Twelve digits: sums in another order must not change places.
    return -round(made.priority, 12), -used, TRANSFER.index(offer.transfer.kind), offer.entry.id


def _few(ranked: Sequence[Offer], excluded: list[Excluded]) -> list[Offer]:
    """Keep the best few of what does the same job: nobody uses ten allocators, or a thousand tuned files."""
    count: dict[tuple[str, str], int] = {}
    found = []
    for offer in ranked:
        most = ROW_ALTERNATIVES if offer.matches else ALTERNATIVES
        places = [(offer.entry.kind, place) for place in _places(offer)]
        if not places or any(count.get(place, 0) < most for place in places):
            found.append(offer)
            for place in places:
                count[place] = count.get(place, 0) + 1
        else:
            reason = f"{most} of its kind do the same and rank higher"
            excluded.append(Excluded(offer.entry.id, "alternative", reason))
    return found


def _places(offer: Offer) -> list[str]:
    """Return the jobs that an offer does: its rows, or for the whole step what strategies of its topic do."""
    if offer.matches:
        return [match.row.name for match in offer.matches]
    return [f"{offer.entry.operator} of the step"] if offer.entry.kind in ("allocation", "comm") else []


def _row(rank: int, offer: Offer, found: Score, notes: Sequence[str]) -> PlanRow:
    entry = offer.entry
    matches = sorted(offer.matches, key=lambda one: -(one.row.share or 0.0))
    first = matches[0].row if matches else None
    reached = [offer.transfer, *(one.transfer for one in matches)]
    return PlanRow(
        rank=rank,
        id=entry.id,
        version=entry.version,
        title=entry.title,
        kind=entry.kind,
        role=offer.role,
        row=None if first is None else first.name,
        operator=entry.operator if first is None else first.operator,
        transfer=offer.transfer.kind,
        reasons=tuple(dict.fromkeys(reason for each in reached for reason in each.reasons)),
        share=_rounded(found.share),
        share_from=found.share_from,
        evidence=found.standing.level,
        freshness=found.standing.freshness,
        evidence_device=found.standing.device,
        gain=_rounded(found.gain),
        gain_low=_rounded(found.low),
        gain_high=_rounded(found.high),
        gain_from=found.origin,
        confidence=round(found.confidence, 4),
        saving=_rounded(found.saving),
        priority=round(found.priority, 6),
        license=entry.license,
        restrictions=tuple(entry.raw.get("restrictions", ())),
        reported=entry.tally.reported,
        also=tuple(match.row.name for match in matches[1:]),
        latency_us=_rounded(found.latency_us),
        floor_us=_rounded(found.floor_us),
        summary=entry.summary,
        notes=tuple(notes),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _notes(offer: Offer, found: Score) -> list[str]:
    notes = [*offer.notes, *(note for match in offer.matches for note in match.notes), *found.notes]
    if licensing.unread(offer.entry.license):
        notes.append(f"read its license, {offer.entry.license}: the identifier says nothing")
    return list(dict.fromkeys(notes))


def _open_tokens(offer: Offer, kept: Sequence[Offer]) -> list[str]:
    missing = contracts.unmet(offer, kept)
    return [f"the step has to provide {', '.join(missing)}"] if missing else []


def _coverage(row: Wanted, ordered: Sequence[Offer]) -> Coverage:
    here = [offer for offer in ordered if any(match.row.name == row.name for match in offer.matches)]
    return Coverage(
        row.name,
        row.operator,
        row.share,
        row.share_from,
        row.calls_per_step,
        tuple(dict.fromkeys(offer.entry.id for offer in here if _runs(offer, row))),
        tuple(dict.fromkeys(offer.entry.id for offer in here)),
    )


def _runs(offer: Offer, row: Wanted) -> bool:
    """Tell whether an offer is code of the row's own operator that runs there; tuned parameters alone are none."""
    return offer.role in _RUNS and offer.entry.kind == "kernel" and offer.entry.operator == row.operator


def _gaps(entries: Iterable[Known], wish: Wish, ordered: Sequence[Offer], excluded: Sequence[Excluded]) -> list[Gap]:
    known = list(entries)
    found = []
    for row in wish.rows:
        if _coverage(row, ordered).runnable:
            continue
        barred = {one.id: one for one in excluded if one.because in ("license", "conflict", "refuted", "slower")}
        nearest = _nearest(known, row, wish, barred)
        reasons = _why_not(known, row, wish, barred)
        if nearest is None and (idea := _idea_for_the_step(ordered)) is not None:
            nearest = idea
            reasons.append(f"{idea[0]} is about the step as a whole")
        axes = dict(max(row.sizes, key=lambda size: size.weight).axes)
        found.append(
            Gap(row.name, row.operator, axes, row.dtypes, row.share, tuple(reasons),
                nearest[0] if nearest else None, nearest[1] if nearest else None)
        )  # fmt: skip
    return sorted(found, key=lambda gap: (-(gap.share or 0.0), gap.row))


def _candidates(known: Iterable[Known], row: Wanted) -> list[Known]:
    return [one for one in known if one.outcome == "works" and one.withdrawn is None and row.operator in one.operators]


def _why_not(known: Sequence[Known], row: Wanted, wish: Wish, barred: Mapping[str, Excluded]) -> list[str]:
    kernels = [one for one in _candidates(known, row) if one.kind == "kernel" and one.operator == row.operator]
    if not kernels:
        return [f"no entry computes {row.operator}"]
    found = []
    for one in kernels:
        if one.id in barred:
            found.append(f"{one.id}: {barred[one.id].reason}")
        else:
            found.append(f"{one.id}: {'; '.join(_reach(one, row, wish).reasons)}")
    return found


def _reach(one: Known, row: Wanted, wish: Wish) -> transfer.Transfer:
    asked = [Asked(size.axes, row.dtypes, wish.device_count, wish.toolchain) for size in row.sizes]
    found = [transfer.assess(one.facts, wish.scope, asked=each) for each in asked]
    return min(found, key=lambda each: TRANSFER.index(each.kind))


def _nearest(known: Sequence[Known], row: Wanted, wish: Wish, barred: Mapping[str, Excluded]) -> tuple[str, str] | None:
    """Return what to start from: code to port before an idea, of the row's operator before what merely applies."""
    best = []
    for one in _candidates(known, row):
        if barred.get(one.id) is not None and barred[one.id].because == "license":
            continue
        if one.kind not in ("kernel", "technique", "combination", "config") or not _is_near(one, row):
            continue
        reached = _reach(one, row, wish)
        if reached.kind != "none":
            best.append((TRANSFER.index(reached.kind), one.operator != row.operator, one.id, reached.kind))
    return (min(best)[2], min(best)[3]) if best else None


def _idea_for_the_step(ordered: Sequence[Offer]) -> tuple[str, str] | None:
    """Return the first idea that concerns every row, for rows that nothing else comes near."""
    ideas = (one for one in ordered if one.entry.kind in ("technique", "combination") and not one.matches)
    return next(((one.entry.id, one.transfer.kind) for one in ideas), None)


def _is_near(one: Known, row: Wanted) -> bool:
    return concerns(one, row) or one.operator == row.operator


def _campaigns(entries: Iterable[Known], wish: Wish) -> list[str]:
    """Name the campaigns on this target, and those that they started from."""
    found = []
    for one in entries:
        campaign = one.raw.get("campaign") if one.kind == "campaign" else None
        if campaign and one.outcome == "works" and campaign.get("target") == wish.id:
            reused = ", ".join(campaign.get("reused", ()))
            found.append(f"an earlier campaign on this target: {one.id}" + (f"; it reused {reused}" if reused else ""))
    return found
