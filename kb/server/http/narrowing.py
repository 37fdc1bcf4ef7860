"""What the hard scope does not know and people filter by all the same: language, level of evidence, what runs."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kb import catalogue
from kb.models.vocabulary import EVIDENCE, RUNNABLE
from kb.retrieval import words
from kb.retrieval.query import lookup

_WHOLE = 0.6
"""Weight from which the lexicon puts an operator into a family, and does not merely hint at it."""


@dataclass(frozen=True)
class Narrowing:
    """Filters on what was found, in its order."""

    language: str | None = None
    evidence: str | None = None
    """At least this level."""
    runs: bool = False
    """Only what runs on the asked device."""

    def __bool__(self) -> bool:
        """Tell whether anything is left out."""
        return bool(self.language or self.evidence or self.runs)

    def keeps(self, language: str, evidence: str, transfer: str | None) -> bool:
        """Tell whether an entry stays.

        Args:
            language: What its code is written in.
            evidence: Its level of evidence.
            transfer: How it reaches the asked device; None if none was asked.
        """
        if self.language is not None and language != self.language:
            return False
        if self.runs and transfer not in RUNNABLE:
            return False
        return self.evidence is None or EVIDENCE.index(evidence) >= EVIDENCE.index(self.evidence)

    def said(self) -> str:
        """Return it in words."""
        parts = [
            self.language and f"language {self.language}",
            self.evidence and f"evidence of at least {self.evidence}",
            self.runs and "runs on the asked device",
        ]
        return ", ".join(part for part in parts if part)


def languages(connection: sqlite3.Connection) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return id to language and dtypes, of all entries.

    Args:
        connection: An up-to-date catalogue.
    """
    sql = f"SELECT id, language, dtypes FROM {catalogue.ENTRY}"  # noqa: S608
    rows = connection.execute(sql)
    return {name: (language, tuple(catalogue.stored_json(dtypes))) for name, language, dtypes in rows}


def families(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return each operator of the store with the families that the lexicon puts it in.

    Args:
        connection: An up-to-date catalogue.
    """
    sql = f"SELECT DISTINCT operator FROM {catalogue.ENTRY_OPERATOR} ORDER BY 1"  # noqa: S608
    known = [row[0] for row in connection.execute(sql)]
    meanings = lookup(connection, [words.normal(name) for name in known])
    return {
        name: tuple(
            canonical
            for facet, canonical, weight in meanings.get(words.normal(name), ())
            if facet == "family" and weight >= _WHOLE
        )
        for name in known
    }


def counted(values: Iterable[str | None]) -> dict[str, int]:
    """Return how often each value is there, the most frequent first."""
    found = Counter(value for value in values if value is not None)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def counts_of(rows: Iterable[Mapping[str, Any]], members: Mapping[str, Iterable[str]]) -> dict[str, dict[str, int]]:
    """Count the values of each facet in rows of a list.

    Args:
        rows: Entries, each with the facets by name and ``dtypes``.
        members: Operator to families.
    """
    listed = list(rows)
    single = ("kind", "operator", "outcome", "evidence", "freshness", "transfer", "license", "language")
    found = {name: counted(row[name] for row in listed) for name in single}
    found["dtype"] = counted(dtype for row in listed for dtype in row["dtypes"])
    found["family"] = counted(family for row in listed for family in members.get(row["operator"] or "", ()))
    return found
