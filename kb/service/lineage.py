"""Where entries come from and what came of them: one graph over the whole knowledge base."""

import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb import catalogue
from kb.errors import EntryNotFoundError

MOST_NODES = 400
"""Nodes that one answer has; what is farther away is left out."""

_NODE = ("id", "version", "title", "kind", "outcome", "withdrawn")
_SQL = f"SELECT {', '.join(_NODE)}, facts FROM {catalogue.ENTRY} ORDER BY id"  # noqa: S608


@dataclass(frozen=True)
class Edge:
    """One entry that another one came from, uses, or was made for."""

    source: str
    target: str
    relation: str
    """How the target came from the source (``mutated``, ``ported`` …), or ``used_by``, ``target_of``, ``reused_by``,
    ``produced``."""


@dataclass(frozen=True)
class Graph:
    """All entries and how they hang together."""

    nodes: Mapping[str, Mapping[str, Any]]
    """Id to version, title, kind, outcome and withdrawal."""
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Part:
    """What hangs together with one entry."""

    nodes: tuple[Mapping[str, Any], ...]
    """By distance, then id; an id that no entry has is ``missing``."""
    edges: tuple[Edge, ...]
    complete: bool
    """False if something was left out because there is too much of it."""


def graph(connection: sqlite3.Connection) -> Graph:
    """Read the graph of a knowledge base.

    Args:
        connection: An up-to-date catalogue.
    """
    nodes: dict[str, Mapping[str, Any]] = {}
    edges: list[Edge] = []
    for *row, facts in connection.execute(_SQL):
        node = dict(zip(_NODE, row, strict=True))
        nodes[node["id"]] = node
        edges.extend(_edges(node["id"], catalogue.stored_json(facts)))
    return Graph(nodes, tuple(dict.fromkeys(edges)))


def _edges(entry: str, facts: Mapping[str, Any]) -> Iterator[Edge]:
    for ancestor in facts.get("lineage") or ():
        yield Edge(ancestor["parent"], entry, ancestor["relation"])
    for used in facts.get("uses") or ():
        yield Edge(used, entry, "used_by")
    campaign = facts.get("campaign") or {}
    if campaign.get("target"):
        yield Edge(campaign["target"], entry, "target_of")
    for reused in campaign.get("reused") or ():
        yield Edge(reused, entry, "reused_by")
    for produced in campaign.get("produced") or ():
        yield Edge(entry, produced, "produced")


def around(whole: Graph, entry: str, *, depth: int = 3) -> Part:
    """Return what hangs together with an entry.

    Args:
        whole: The graph.
        entry: An id.
        depth: Most steps away from it, in either direction.

    Raises:
        EntryNotFoundError: No entry has this id.
    """
    if entry not in whole.nodes:
        raise EntryNotFoundError(f"no entry has the id {entry!r}", hint="kb list")
    beside: dict[str, list[str]] = defaultdict(list)
    for edge in whole.edges:
        beside[edge.source].append(edge.target)
        beside[edge.target].append(edge.source)
    reached, complete = _walk(entry, beside, depth)
    nodes = tuple({**_node(whole, one), "distance": steps} for one, steps in sorted(reached.items(), key=_nearest))
    edges = tuple(edge for edge in whole.edges if edge.source in reached and edge.target in reached)
    return Part(nodes, edges, complete)


def _nearest(one: tuple[str, int]) -> tuple[int, str]:
    return one[1], one[0]


def _walk(entry: str, beside: Mapping[str, Sequence[str]], depth: int) -> tuple[dict[str, int], bool]:
    reached = {entry: 0}
    waiting = deque([entry])
    while waiting:
        here = waiting.popleft()
        if reached[here] == depth:
            continue
        for other in sorted(beside[here]):
            if other in reached:
                continue
            if len(reached) >= MOST_NODES:
                return reached, False
            reached[other] = reached[here] + 1
            waiting.append(other)
    return reached, True


def _node(whole: Graph, entry: str) -> dict[str, Any]:
    known = whole.nodes.get(entry)
    if known is not None:
        return {**known, "missing": False}
    return {**dict.fromkeys(_NODE), "id": entry, "kind": entry.split("/", 1)[0], "missing": True}
