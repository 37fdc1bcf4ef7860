"""The bare tier: from a query and a scope to an answer, out of the catalogue alone. Standard library only."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from functools import lru_cache

from kb import evidence
from kb.catalogue import ENTRY, JSON_COLUMNS, LEXICON, TEXT, stored_json
from kb.errors import DeviceUnavailableError, IndexStaleError, RetrievalError
from kb.models.hit import Answer, Hit
from kb.retrieval import filters, lexical, rank, words
from kb.retrieval.filters import Scope
from kb.retrieval.query import Understanding, understand
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kb.hardware import DeviceScope
    from kb.retrieval.axes import Fit

MAX_CHARACTERS = 4_000
"""How much of a query is read; a longer one is a pasted log, and its first lines say what broke."""

MAX_LIMIT = 1_000

_CANDIDATES = 400
"""Entries that full-text search hands on to be ranked by title, tags and facets."""
_WEIGHED = 60
"""Of those, how many are ranked by what their facts say."""


_parsed = lru_cache(maxsize=2_048)(stored_json)
"""Facts and cells as they were parsed before, in a process that stays; nobody may change them."""


class Blend:
    """What another way of searching adds to a search by words; this one adds nothing."""

    def scores(self, found: Mapping[int, float], scope: Scope) -> dict[int, float]:
        """Return scores by rowid: of what words found, as given, and of what else is found in the scope."""
        del scope
        return dict(found)

    def why(self, rowid: int) -> str | None:
        """Say why an entry is there that words did not find, or None."""
        del rowid
        return None


def search(
    connection: sqlite3.Connection, query: str, *, scope: Scope, limit: int, blend: Blend | None = None
) -> Answer:
    """Answer a query.

    Args:
        connection: An up-to-date catalogue.
        query: Words of any kind; nothing in it is syntax.
        scope: The hard filters, from :func:`kb.retrieval.filters.make`.
        limit: Most hits to return, 1 to 1,000.
        blend: Another way of searching, whose finds are ranked together with those by words.

    Returns:
        Hits, best first (by score, then id), or the reason why there are none.

    Raises:
        RetrievalError: The query is empty, or the limit is out of range.
        IndexStaleError: The catalogue cannot be read.
    """
    began = time.perf_counter()
    if not query.strip():
        raise RetrievalError("the query is empty", hint="say what you look for, or see everything with: kb list")
    if not 1 <= limit <= MAX_LIMIT:
        raise RetrievalError(f"the limit is {limit}: expected 1 to {MAX_LIMIT}", hint="kb search QUERY --limit 10")
    try:
        return _Search(connection, query, scope, blend).answer(limit, began)
    except sqlite3.Error as error:
        raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error


class _Ranked(Frozen):
    """An entry with its place in the order."""

    score: float
    candidate: rank.Candidate
    row: Mapping[str, Any]
    fit: Fit | None = None
    """How its tuned parameters fit the asked sizes; None where none were asked or it has none."""

    @property
    def reach(self) -> str | None:
        """Transfer class on the device that is known, if one is."""
        return None if self.candidate.transfer is None else self.candidate.transfer.kind


class _Search:
    """One search, so that its parts need not hand the same five values around."""

    def __init__(self, connection: sqlite3.Connection, query: str, scope: Scope, blend: Blend | None = None) -> None:
        self.connection = connection
        self.blend = blend
        self.query = query
        self.scope = scope
        self.understanding = understand(connection, query[:MAX_CHARACTERS])
        self.devices = scope.devices or _mentioned(self.understanding)
        self.today = evidence.today_of(connection)
        self.sizes: tuple[tuple[str, int], ...] = ()
        if "=" in query:
            from kb.retrieval import axes

            self.sizes = axes.asked(query[:MAX_CHARACTERS])

    def answer(self, limit: int, began: float) -> Answer:
        """Rank, explain and pack."""
        ranked, dropped = self.ranked(self.scope, limit)
        return Answer(
            query=self.query,
            facets=self.understanding.facets,
            scope=self.scope.to_json(),
            hits=tuple(self.hit(one) for one in ranked[:limit]),
            empty_because=None if ranked else self.empty_because(dropped),
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            expansions=self.understanding.expansions,
            notes=(*self.nearest(ranked), *self.notes(dropped)),
        )

    def ranked(self, scope: Scope, limit: int) -> tuple[list[_Ranked], list[_Ranked]]:
        """Return what was found in order, and that of which nothing carries over to the asked device."""
        condition, parameters = scope.condition()
        scores = lexical.search(
            self.connection,
            self.understanding,
            condition=condition,
            parameters=parameters,
            limit=max(_CANDIDATES, limit),
        )
        if self.blend is not None:
            scores = self.blend.scores(scores, scope)
        if not scores:
            return [], []
        top = max(scores.values())
        found = [self.judged(row, scores[row["rowid"]] / top) for row in self.candidates(scores, max(_WEIGHED, limit))]
        rare = rank.with_rare([one.score for one in found], [one.candidate for one in found], self.understanding)
        found = [one.with_(score=score) for one, score in zip(found, rare, strict=True)]
        found.sort(key=lambda one: (-one.score, one.row["id"]))
        akin = rank.with_kin([one.score for one in found], [one.candidate.labels for one in found])
        found = [one.with_(score=self.sized(one, score)) for one, score in zip(found, akin, strict=True)]
        found.sort(key=lambda one: (-one.score, one.row["id"]))
        if scope.devices is None:
            return found, []
        return [one for one in found if one.reach != "none"], [one for one in found if one.reach == "none"]

    def candidates(self, scores: Mapping[int, float], most: int) -> list[dict[str, Any]]:
        """Load the rows that words, title, tags and facets put first."""
        marks = ",".join("?" * len(scores))
        sql = f"SELECT rowid, title, facets, tags FROM {TEXT} WHERE rowid IN ({marks})"  # noqa: S608
        facets = {}
        likely = []
        top = max(scores.values())
        for rowid, title, text, tags in self.connection.execute(sql, tuple(scores)):
            topics, mentions = words.facets(text)
            facets[rowid] = (topics, mentions, tags)
            part = rank.likely(scores[rowid] / top, title, tags, topics, mentions, self.understanding)
            likely.append((-part, rowid))
        first = [rowid for _, rowid in sorted(likely)[:most]]
        columns = ("rowid", "id", "version", "title", "kind", "operator", "outcome", "license", "summary", "withdrawn",
                   "facts", "cells")  # fmt: skip
        marks = ",".join("?" * len(first))
        sql = f"SELECT {', '.join(columns)} FROM {ENTRY} WHERE rowid IN ({marks})"  # noqa: S608
        found = []
        for row in self.connection.execute(sql, tuple(first)):
            known = {name: _parsed(value) if name in JSON_COLUMNS else value
                     for name, value in zip(columns, row, strict=True)}  # fmt: skip
            known["topics"], known["mentions"], known["words"] = facets[row[0]]
            found.append(known)
        return found

    def judged(self, row: Mapping[str, Any], text: float) -> _Ranked:
        """Judge one entry by its facts."""
        facts, cells = row["facts"], row["cells"]
        reached = None
        if self.devices is not None:
            from kb import transfer

            known = transfer.facts_of(row["id"], facts, measured_on=evidence.measured_on(cells, self.today))
            reached = transfer.assess(known, self.devices)
        candidate = rank.Candidate(
            kind=row["kind"],
            operator=row["operator"],
            outcome=row["outcome"],
            title=row["title"],
            text=text,
            topics=row["topics"],
            mentions=row["mentions"],
            tags=row["words"],
            labels=frozenset(facts.get("tags", ())),
            questions=tuple(facts.get("questions", ())),
            code=bool(facts.get("entry_point")),
            narrow=bool(facts.get("entry_point")) or bool(row["operator"]) + len(facts.get("applies_to", ())) == 1,
            standing=evidence.standing(facts, scope=self.devices, transfer=reached, cells=cells, today=self.today),
            transfer=reached,
            gain=evidence.gain(cells, scope=self.devices, today=self.today),
            withdrawn=row["withdrawn"],
        )
        score = rank.score(candidate, self.understanding, asked=self.scope.devices is not None)
        return _Ranked(score, candidate, row, self.fit(row))

    @staticmethod
    def sized(one: _Ranked, score: float) -> float:
        """Put tuned parameters first where just their sizes were asked."""
        return score if one.fit is None else rank.with_sizes(score, one.fit)

    def fit(self, row: Mapping[str, Any]) -> Fit | None:
        """Hold tuned parameters against the sizes that the query states."""
        tuned = row["facts"].get("tuned")
        if not self.sizes or not tuned:
            return None
        from kb.retrieval import axes

        return axes.fit(
            self.sizes,
            tuned,
            device_names=None if self.devices is None else self.devices.device_names,
            said=self.understanding.said,
            asked_dtypes=self.understanding.facets.get("dtype", ()),
            dtypes=row["facts"].get("dtypes", ()),
        )

    def hit(self, one: _Ranked) -> Hit:
        """Pack what is shown of an entry; only hits that are returned come here."""
        row, standing = one.row, one.candidate.standing
        return Hit(
            id=row["id"],
            version=row["version"],
            title=row["title"],
            kind=row["kind"],
            operator=row["operator"],
            outcome=row["outcome"],
            score=one.score,
            transfer=one.reach,
            evidence=standing.level,
            freshness=standing.freshness,
            best=evidence.best(row["facts"], scope=self.devices, cells=row["cells"], today=self.today),
            why=self.why(one),
            license=row["license"],
            evidence_device=standing.device,
            summary=row["summary"],
            restrictions=tuple(row["facts"].get("restrictions", ())),
        )

    def why(self, one: _Ranked) -> tuple[str, ...]:
        """Say why an entry is shown."""
        device = None if self.devices is None else _short(self.devices)
        found = rank.reasons(one.candidate, device)
        if one.fit is not None:
            differs = "; ".join(one.fit.differences)
            found = (f"differs from what was asked: {differs}" if differs else "tuned for just these sizes", *found)
        matched = rank.matched(one.candidate, self.understanding)
        meant = None if self.blend is None else self.blend.why(one.row["rowid"])
        if meant is not None:
            return (*found, *matched, meant)
        if not matched:
            sql = f"SELECT tags || ' ' || text FROM {TEXT} WHERE rowid = ?"  # noqa: S608
            body = words.clean(self.connection.execute(sql, (one.row["rowid"],)).fetchone()[0])
            said = [term for term in self.understanding.terms if term in body][:6]
            matched = (f"its text has {', '.join(said)}" if said else "its text has forms of the words asked for",)
        return (*found, *matched)

    def nearest(self, ranked: list[_Ranked]) -> tuple[str, ...]:
        """Say that nothing is tuned for the asked sizes, and which comes nearest."""
        tuned = [one for one in ranked if one.fit is not None]
        if not tuned or any(one.fit is not None and one.fit.exact for one in tuned):
            return ()
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes)
        differs = "; ".join(tuned[0].fit.differences) if tuned[0].fit is not None else ""
        return (f"nothing is tuned for just {sizes} as asked; nearest: {tuned[0].row['id']}, which differs: {differs}",)

    def notes(self, dropped: list[_Ranked]) -> tuple[str, ...]:
        """Say what was left out or assumed."""
        found = []
        if len(self.query) > MAX_CHARACTERS:
            found.append(f"only the first {MAX_CHARACTERS:,} characters of the query were read")
        if self.devices is not None and self.scope.devices is None:
            found.append(
                f"the query mentions {_short(self.devices)}: transfer is for it; ask for another with --device"
            )
        if dropped:
            found.append(
                f"left out, since nothing of them carries over: {', '.join(one.row['id'] for one in dropped[:5])}"
            )
        found.extend(self.withdrawn())
        return tuple(found)

    def withdrawn(self) -> list[str]:
        """Say which withdrawn entries would have been found."""
        any_at_all = f"SELECT 1 FROM {ENTRY} WHERE withdrawn IS NOT NULL LIMIT 1"  # noqa: S608
        if self.scope.withdrawn or self.connection.execute(any_at_all).fetchone() is None:
            return []
        condition, parameters = self.scope.condition()
        condition = condition.replace("e.withdrawn IS NULL", "e.withdrawn IS NOT NULL")
        scores = lexical.search(
            self.connection, self.understanding, condition=condition, parameters=parameters, limit=3
        )
        marks = ",".join("?" * len(scores))
        sql = f"SELECT id FROM {ENTRY} WHERE rowid IN ({marks}) ORDER BY id"  # noqa: S608
        ids = [row[0] for row in self.connection.execute(sql, tuple(scores))]
        return [f"withdrawn and left out: {', '.join(ids)}; --withdrawn shows them"] if ids else []

    def empty_because(self, dropped: list[_Ranked]) -> str:
        """Name what emptied the answer, and the nearest hit without it."""
        if filters.count(self.connection) == 0:
            return "the knowledge base has no entries yet: kb add DIR"
        if dropped:
            return f"nothing carries over to {self.scope.device or self.scope.arch}; nearest: {_named(dropped[0])}"
        for flag, scope in self.scope.relaxed():
            nearest, _ = self.ranked(scope, 1)
            if nearest:
                return f"{flag} leaves nothing; without it the nearest is {_named(nearest[0])}"
        free = self.scope.without_filters()
        nearest = self.ranked(free, 1)[0] if free != self.scope else []
        if nearest:
            flags = " ".join(flag for flag, _ in self.scope.relaxed())
            return f"{flags} together leave nothing; without them the nearest is {_named(nearest[0])}"
        if not self.understanding.terms:
            return "the query has no word to look for"
        return f"no entry has any of these words: {', '.join(self.understanding.terms[:8])}{self.spelling()}"

    def spelling(self) -> str:
        """Offer known words that look like those of the query."""
        import difflib

        known = [row[0] for row in self.connection.execute(f"SELECT DISTINCT term FROM {LEXICON} ORDER BY term")]  # noqa: S608
        near: dict[str, None] = {}
        for term in self.understanding.terms[:8]:
            near.update(dict.fromkeys(difflib.get_close_matches(words.normal(term), known, n=2, cutoff=0.7)))
        return f"; did you mean {', '.join(near)}?" if near else ""


def _short(devices: DeviceScope) -> str:
    """Name a device as it reports itself, and a family as it was asked for."""
    return devices.label if len(devices.members) == 1 else devices.asked


def _named(one: _Ranked) -> str:
    return f"{one.row['id']} ({one.row['title']})"


def _mentioned(understanding: Understanding) -> DeviceScope | None:
    """Return the device that the query mentions, if it is exactly one and the hardware table has it."""
    for facet in ("device", "arch", "generation"):
        said = [
            canonical
            for concept in understanding.concepts
            for found, canonical, weight in concept.meanings
            if found == facet and weight >= 0.9
        ]
        if len(set(said)) > 1:
            return None
        if said:
            from kb import hardware

            try:
                return hardware.resolve(said[0].upper().replace("_", " ") if facet == "device" else said[0])
            except DeviceUnavailableError:
                return None
    return None
