"""Which offers cannot be used together, and which has to come before which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kb.planning.values import Known, Offer

_SAME_THING: Mapping[str, str] = {"graph:capture": "graph:captured"}
"""A conflict with capturing is one with whatever captures."""

_LOCAL = ("layout:",)
"""Tokens that speak of one operator's operands, so that they only meet on a row that two entries share."""


def conflict(one: Known, other: Known, *, shared: bool) -> str | None:
    """Return a token over which two entries conflict, or None.

    Args:
        one: An entry.
        other: Another.
        shared: Whether they serve a row together; only there do layouts of operands meet.
    """
    found = []
    for first, second in ((one, other), (other, one)):
        needed = second.tokens("provides") | second.tokens("requires")
        for token in first.tokens("conflicts"):
            met = _SAME_THING.get(token, token)
            if (token in needed or met in needed) and (shared or not token.startswith(_LOCAL)):
                found.append(token)
    return min(found) if found else None


def resolve(ranked: Sequence[Offer], combinations: Iterable[Known]) -> tuple[list[Offer], list[tuple[Offer, str]]]:
    """Keep the more valuable of two offers that conflict; code that runs is never given up for an idea.

    Args:
        ranked: Most valuable first.
        combinations: Entries that show how parts are used together; what one of them uses does not conflict.

    Returns:
        What is kept, in order, and what is not, with the reason.
    """
    together = [frozenset(one.uses) for one in combinations]
    kept: list[Offer] = []
    dropped: list[tuple[Offer, str]] = []
    for offer in sorted(ranked, key=lambda one: one.role not in ("run", "tune")):
        against = _first_conflict(offer, kept, together)
        if against is None:
            kept.append(offer)
        else:
            dropped.append((offer, f"conflicts with {against[0]} over {against[1]}; that one is kept"))
    chosen = {id(one) for one in kept}
    return [one for one in ranked if id(one) in chosen], dropped


def _first_conflict(offer: Offer, kept: Sequence[Offer], together: Sequence[frozenset[str]]) -> tuple[str, str] | None:
    for other in kept:
        if other.entry.id == offer.entry.id or any({offer.entry.id, other.entry.id} <= one for one in together):
            continue
        shared = bool({match.row.name for match in offer.matches} & {match.row.name for match in other.matches})
        token = conflict(offer.entry, other.entry, shared=shared)
        if token is not None:
            return other.entry.id, token
    return None


def reconciled(offer: Offer, kept: Iterable[Offer], combinations: Iterable[Known]) -> list[str]:
    """Say with what an offer conflicts although both are kept, and which combination shows how they go together."""
    found = []
    for other in kept:
        if other.entry.id == offer.entry.id:
            continue
        shared = bool({match.row.name for match in offer.matches} & {match.row.name for match in other.matches})
        token = conflict(offer.entry, other.entry, shared=shared)
        how = next((one.id for one in combinations if {offer.entry.id, other.entry.id} <= set(one.uses)), None)
        if token is not None and how is not None:
            found.append(f"conflicts with {other.entry.id} over {token}: {how} says how they go together")
    return found


def in_order(ranked: Sequence[Offer]) -> list[Offer]:
    """Return offers so that what another one builds on comes before it, most valuable first otherwise.

    Args:
        ranked: Most valuable first.
    """
    offered = frozenset[str]().union(*(offer.entry.tokens("provides") for offer in ranked)) if ranked else frozenset()
    waiting = list(ranked)
    done: list[Offer] = []
    have: set[str] = set()
    while waiting:
        ready = (one for one in waiting if not _of_the_step(one.entry.tokens("requires") & offered) - have)
        # What waits for itself in a circle goes by value.
        chosen = next(ready, waiting[0])
        waiting.remove(chosen)
        done.append(chosen)
        have |= chosen.entry.tokens("provides")
    return done


def _of_the_step(tokens: Iterable[str]) -> set[str]:
    """Leave out layouts of operands: whoever else has them makes nothing ready."""
    return {token for token in tokens if not token.startswith(_LOCAL)}


def unmet(offer: Offer, kept: Iterable[Offer]) -> list[str]:
    """Return the tokens that an offer requires and nothing in the plan provides: the step itself has to have them."""
    have = frozenset[str]().union(*(one.entry.tokens("provides") for one in kept if one is not offer))
    return sorted(offer.entry.tokens("requires") - have - offer.entry.tokens("provides"))
