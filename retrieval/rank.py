"""Ordering: one convex sum of normalised parts a hit, with its reasons. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kb.models.facts import Standing
from kb.models.vocabulary import EVIDENCE
from kb.retrieval import words
from kb.retrieval.query import FUNCTION_WORDS, Understanding, carried, weighed
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kb.retrieval.axes import Fit
    from kb.transfer import Transfer

_FREE: Mapping[str, float] = {
    "text": 0.29, "title": 0.067, "tags": 0.19, "facets": 0.108, "operator": 0.096, "questions": 0.17,
    "evidence": 0.025, "freshness": 0.012, "outcome": 0.021, "kind": 0.021,
}  # fmt: skip
"""Weights where no device is known."""

_MENTIONED = 0.10
"""Weight of transfer where the query only mentions a device."""
_ASKED = 0.15
"""Weight of transfer where a device is asked for: a runnable entry passes a slightly better match that is not."""

_TRANSFER: Mapping[str, float] = {
    "exact": 1.0, "recompile": 0.95, "retune": 0.8, "port": 0.3, "technique": 0.25, "none": 0.0,
}  # fmt: skip
_NO_CODE = 0.8
"""Transfer of an idea that never was code: it is what it is on every device."""
_TUNED_ELSEWHERE = 0.4
"""Transfer of parameters that were tuned on another device: they are nothing but their tuning."""
_UNASKED = 0.7
"""What is about one operator where none was named, against what is about several or all."""
_TRAINING = 0.85
"""What is made for training, where nothing of that was asked: gradients of an operator share all of its words."""
_ABOUT = 0.3
"""What knowledge about the named operator counts, against what computes it."""
_FRESHNESS: Mapping[str, float] = {"fresh": 1.0, "unknown": 0.5, "stale": 0.4, "infeasible": 0.2, "refuted": 0.0}
_KIND: Mapping[str, float] = {"target": 0.2, "campaign": 0.3, "combination": 0.6, "config": 0.2}
"""A target describes what is wanted, a combination what it is made of: nearly every word of a domain is in them.

Parameters are named after the operator that they tune, but who wants to tune says so.
"""
_SIZES = 0.3
"""What tuned parameters lose whose sizes have nothing to do with the asked ones."""
_LEAST_GAIN, _MOST_GAIN = 0.25, 1.25
"""Measured speed-ups beyond these count no further: what is proven matters more than by how much."""
_RARE_WORDS = 0.05
"""What words add that few of the hits have: among ten ways to reduce, ``tree`` says more than ``allreduce``."""
_RARE_FACETS = 0.02
"""What facets add in the same way."""
_SEEN = 0.3
"""How much of a word or facet all hits together need for it to count: what none has tells none apart."""
_KIN = 0.2
"""What likeness to the best hits adds: what is tagged as they are is about the same, whatever words it has."""
_BEST = 4
"""How many of the best hits others are held against."""
_FALL = 4
"""Power of a hit's score over the best one: what is far behind the best one says little of what was meant."""
_ITSELF = 0.3
"""What a hit is to itself: as much as one that shares a third of its tags."""
_CODE_FOR_TROUBLE = 0.4
"""Code where something is wrong or slow, against knowledge about it."""


class Candidate(Frozen):
    """What is known of an entry when it is ranked."""

    kind: str
    operator: str | None
    """What the entry computes."""
    outcome: str
    title: str
    text: float
    """Full-text score over the best one of this search, 0 to 1."""
    topics: frozenset[str]
    """Facet tokens of what the entry is about."""
    mentions: frozenset[str]
    """Facet tokens of what it mentions besides."""
    standing: Standing
    transfer: Transfer | None
    """None if no device is known."""
    withdrawn: str | None = None
    tags: str = ""
    """Its tags, operators and the end of its id, as full-text search sees them."""
    labels: frozenset[str] = frozenset()
    """Its tags, one by one."""
    questions: tuple[str, ...] = ()
    """What people ask when it is the answer."""
    code: bool = True
    """False for what carries no code of its own."""
    narrow: bool = True
    """True for what is about a single operator."""
    gain: float | None = None
    """Speed-up that our judge measured there (above 1 is faster); None where nothing was measured."""

    @property
    def facets(self) -> frozenset[str]:
        """All facet tokens of the document."""
        return self.topics | self.mentions


def score(candidate: Candidate, understanding: Understanding, *, asked: bool) -> float:
    """Return the score of a hit, 0 to 1, rounded so that order does not hang on the last bit.

    Args:
        candidate: The entry.
        understanding: What was read from the query.
        asked: True if the device was asked for, False if the query only mentions it.
    """
    asked_for = understanding.said
    parts = {
        "text": candidate.text,
        "title": _share(asked_for, candidate.title),
        "tags": _share(asked_for, candidate.tags),
        "facets": understanding.agreement(candidate.topics, candidate.mentions),
        "operator": _operator(candidate, understanding),
        "questions": words.likeness(asked_for, candidate.questions, without=FUNCTION_WORDS),
        "evidence": _evidence(candidate),
        "freshness": _FRESHNESS[candidate.standing.freshness],
        "outcome": _outcome(candidate.outcome, understanding),
        "kind": _kind(candidate.kind, understanding),
    }
    total = sum(weight * parts[name] for name, weight in _FREE.items())
    if candidate.transfer is not None:
        share = _ASKED if asked else _MENTIONED
        total = (1.0 - share) * total + share * _reach(candidate, candidate.transfer.kind)
    if "training" in candidate.topics and "training" not in understanding.facets.get("phase", ()):
        total *= _TRAINING
    return round(min(total, 1.0), 4)


def with_rare(scores: Sequence[float], candidates: Sequence[Candidate], understanding: Understanding) -> list[float]:
    """Return scores to which was added what a hit has of the query that few others of these hits have.

    What all of them have does not tell them apart. A word counts where a tag, an operator or a question has it, a facet
    where the entry is about it; each by the logarithm of its rarity, and not at all where no hit has it.

    Args:
        scores: What :func:`score` gave, 0 to 1.
        candidates: The entries, in the same order.
        understanding: What was read from the query.

    Returns:
        Scores from 0 to 1 in the same order.

    Raises:
        ValueError: The two differ in length.
    """
    asked = sorted((word, words.root(word)) for word in understanding.said)
    named = [_named(one, asked) for one in candidates]
    concepts = understanding.weighed or weighed(understanding.concepts)
    meant = [[carried(concept, one.topics, one.mentions) for concept in concepts] for one in candidates]
    importance = [concept[0] for concept in concepts]
    rare_words = _rarity(named, [1.0] * len(asked))
    rare_facets = _rarity(meant, importance)
    most = 1.0 + _RARE_WORDS + _RARE_FACETS
    return [
        round((score + _RARE_WORDS * one + _RARE_FACETS * other) / most, 4)
        for score, one, other in zip(scores, rare_words, rare_facets, strict=True)
    ]


def _named(candidate: Candidate, asked: Sequence[tuple[str, str]]) -> list[float]:
    """Return for each word, with its root, whether a tag, an operator or a question has it: 0 or 1."""
    likely = candidate.tags.lower()
    plain = likely.isascii()
    roots = words.asked_with(candidate.questions, without=FUNCTION_WORDS)
    return [
        float(((not plain or word in likely) and words.shared(frozenset((word,)), candidate.tags)) or root in roots)
        for word, root in asked
    ]


def _rarity(rows: Sequence[Sequence[float]], importance: Sequence[float]) -> list[float]:
    """Return the share of what was asked that each row has, weighted by importance and rarity among the rows."""
    totals = [math.fsum(column) for column in zip(*rows, strict=True)]
    weights = [
        weight * math.log((len(rows) + 1) / (total + 1)) if total >= _SEEN else 0.0
        for weight, total in zip(importance, totals, strict=False)
    ]
    most = math.fsum(weights)
    if most <= 0.0:
        return [0.0] * len(rows)
    return [math.fsum(weight * share for weight, share in zip(weights, row, strict=True)) / most for row in rows]


def with_kin(scores: Sequence[float], labels: Sequence[frozenset[str]]) -> list[float]:
    """Return scores to which likeness to the best hits was added: neighbours of a good answer are answers too.

    Likeness is the cosine of two sets of tags. It counts by how near to the best one a hit's own score comes, so that
    where one entry clearly is what was asked for, the others are held against that one alone.

    Args:
        scores: What :func:`with_rare` gave, 0 to 1, the best one first.
        labels: The tags of each, in the same order.

    Returns:
        Scores from 0 to 1 in the same order, which need not fall any more.

    Raises:
        ValueError: The two differ in length.
    """
    pairs = list(zip(scores, labels, strict=True))
    best = [((score / scores[0]) ** _FALL, at, own) for at, (score, own) in enumerate(pairs[:_BEST]) if score > 0.0]
    found = []
    for place, (score, own) in enumerate(pairs):
        kin = max((share * (_ITSELF if place == at else _cosine(own, other)) for share, at, other in best), default=0.0)
        found.append(round((score + _KIN * kin) / (1.0 + _KIN), 4))
    return found


def _cosine(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / math.sqrt(len(one) * len(other)) if both else 0.0


def with_sizes(score: float, fit: Fit) -> float:
    """Return the score of tuned parameters where sizes were asked: those for just these come first.

    Args:
        score: What :func:`with_kin` gave, 0 to 1.
        fit: How their sizes, device and dtype fit.
    """
    if fit.exact:
        return round(0.5 + score / 2.0, 4)
    return round(score * (1.0 - _SIZES * (1.0 - fit.agreement)), 4)


def _evidence(candidate: Candidate) -> float:
    """Return what is proven, worth more of what was measured to gain and less of what was measured to lose."""
    level = EVIDENCE.index(candidate.standing.level) / (len(EVIDENCE) - 1)
    return level if candidate.gain is None else level * min(max(candidate.gain, _LEAST_GAIN), _MOST_GAIN)


def likely(
    text: float, title: str, tags: str, topics: frozenset[str], mentions: frozenset[str], understanding: Understanding
) -> float:
    """Return the part of a score that needs no facts of the entry, to choose the entries whose facts are read.

    Args:
        text: Full-text score over the best one of this search, 0 to 1.
        title: Its title.
        tags: Its tags, as full-text search sees them.
        topics: Facet tokens of what the entry is about.
        mentions: Facet tokens of what it mentions besides.
        understanding: What was read from the query.
    """
    return (
        _FREE["text"] * text
        + _FREE["title"] * _share(understanding.said, title)
        + _FREE["tags"] * _share(understanding.said, tags)
        + _FREE["facets"] * understanding.agreement(topics, mentions)
    )


def _share(asked: frozenset[str], text: str) -> float:
    """Return how many of the words asked for a short text has, as a part of them."""
    return words.shared(asked, text) / len(asked) if asked else 0.0


def _reach(candidate: Candidate, kind: str) -> float:
    if kind == "technique" and not candidate.code:
        return _NO_CODE
    if kind == "retune" and candidate.kind == "config":
        return _TUNED_ELSEWHERE
    return _TRANSFER[kind]


def _operator(candidate: Candidate, understanding: Understanding) -> float:
    """Prefer the operator that was named over a fusion of it with others, whose words contain the name as well.

    Knowledge about the operator, which computes nothing itself, stands between.
    """
    said = [
        canonical
        for concept in understanding.concepts
        for facet, canonical, weight in concept.meanings
        if facet == "operator" and weight >= 0.9
    ]
    if not said:
        return _UNASKED if candidate.narrow else 1.0
    if candidate.operator in said:
        return 1.0
    about = candidate.operator is None and any(words.token(one) in candidate.facets for one in said)
    return _ABOUT if about else 0.0


def _outcome(outcome: str, understanding: Understanding) -> float:
    wants_negative = "outcome" in understanding.facets
    return 1.0 if (outcome != "works") == wants_negative else 0.3


def _kind(kind: str, understanding: Understanding) -> float:
    facets = understanding.facets
    if kind in facets.get("kind", ()):
        return 1.0
    if kind == "config" and "autotuning" in facets.get("technique", ()):
        return 1.0
    trouble = ("symptom" in facets or "outcome" in facets) and kind != "technique"
    return _KIND.get(kind, 1.0) * (_CODE_FOR_TROUBLE if trouble else 1.0)


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
