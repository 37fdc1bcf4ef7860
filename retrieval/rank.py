"""Ordering: one convex sum of normalised parts a hit, with its reasons. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from kb.models.facts import Standing
from kb.models.vocabulary import EVIDENCE
from kb.retrieval import words
from kb.retrieval.query import Understanding
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kb.transfer import Transfer

_FREE: Mapping[str, float] = {
    "text": 0.48, "facets": 0.22, "operator": 0.17, "evidence": 0.05, "freshness": 0.02, "outcome": 0.03, "kind": 0.03,
}  # fmt: skip
"""Weights where no device is known."""

_MENTIONED = 0.12
"""Weight of transfer where the query only mentions a device."""
_ASKED = 0.22
"""Weight of transfer where a device is asked for: a runnable entry passes a slightly better match that is not."""

_TRANSFER: Mapping[str, float] = {
    "exact": 1.0, "recompile": 0.95, "retune": 0.8, "port": 0.3, "technique": 0.25, "none": 0.0,
}  # fmt: skip
_FRESHNESS: Mapping[str, float] = {"fresh": 1.0, "unknown": 0.5, "stale": 0.4, "infeasible": 0.2, "refuted": 0.0}
_KIND: Mapping[str, float] = {"target": 0.2, "campaign": 0.7}
"""A target describes what is wanted; nearly every word of its domain is in it."""


class Candidate(Frozen):
    """What is known of an entry when it is ranked."""

    kind: str
    operator: str | None
    """What the entry computes."""
    outcome: str
    title: str
    text: float
    """Full-text score over the best one of this search, 0 to 1."""
    facets: frozenset[str]
    """Facet tokens of the document."""
    standing: Standing
    transfer: Transfer | None
    """None if no device is known."""
    withdrawn: str | None = None


def score(candidate: Candidate, understanding: Understanding, *, asked: bool) -> float:
    """Return the score of a hit, 0 to 1, rounded so that order does not hang on the last bit.

    Args:
        candidate: The entry.
        understanding: What was read from the query.
        asked: True if the device was asked for, False if the query only mentions it.
    """
    parts = {
        "text": candidate.text,
        "facets": understanding.agreement(candidate.facets),
        "operator": _operator(candidate.operator, understanding),
        "evidence": EVIDENCE.index(candidate.standing.level) / (len(EVIDENCE) - 1),
        "freshness": _FRESHNESS[candidate.standing.freshness],
        "outcome": _outcome(candidate.outcome, understanding),
        "kind": _kind(candidate.kind, understanding),
    }
    total = sum(weight * parts[name] for name, weight in _FREE.items())
    if candidate.transfer is not None:
        share = _ASKED if asked else _MENTIONED
        total = (1.0 - share) * total + share * _TRANSFER[candidate.transfer.kind]
    return round(total, 4)


def _operator(operator: str | None, understanding: Understanding) -> float:
    """Prefer the operator that was named over a fusion of it with others, whose words contain the name as well."""
    said = [
        canonical
        for concept in understanding.concepts
        for facet, canonical, weight in concept.meanings
        if facet == "operator" and weight == 1.0
    ]
    return 1.0 if not said or operator in said else 0.0


def _outcome(outcome: str, understanding: Understanding) -> float:
    wants_negative = "outcome" in understanding.facets
    return 1.0 if (outcome != "works") == wants_negative else 0.3


def _kind(kind: str, understanding: Understanding) -> float:
    return 1.0 if kind in understanding.facets.get("kind", ()) else _KIND.get(kind, 1.0)


def reasons(candidate: Candidate, device: str | None) -> tuple[str, ...]:
    """Say what to know before using an entry: withdrawal, outcome, and how it reaches the device.

    Args:
        candidate: The entry.
        device: The device that transfer was computed for, as a person would write it.
    """
    found = []
    if candidate.withdrawn is not None:
        found.append(f"withdrawn {candidate.withdrawn}")
    if candidate.outcome != "works":
        found.append(f"negative result: {candidate.outcome}")
    transfer = candidate.transfer
    if transfer is not None and device is not None:
        verb = "runs" if transfer.runnable else "does not run as it is"
        found.append(f"{transfer.kind} ({verb} on {device}): {'; '.join(transfer.reasons)}")
    return tuple(found)


def matched(candidate: Candidate, understanding: Understanding) -> tuple[str, ...]:
    """Say what of the query an entry's facets and title have; empty if only its text matched."""
    shared: dict[str, None] = {}
    for concept in understanding.concepts:
        for _, canonical, _ in concept.meanings:
            if words.token(canonical) in candidate.facets:
                shared[canonical] = None
    found = [f"about {', '.join(shared)}"] if shared else []
    title = set(words.words(words.clean(candidate.title)))
    named = [term for term in understanding.terms if term in title]
    if named:
        found.append(f"title has {', '.join(named)}")
    return tuple(found)
