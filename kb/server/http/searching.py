"""Search and list over HTTP."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response

from kb import catalogue, hardware
from kb.models import vocabulary
from kb.models.hit import Answer
from kb.retrieval import browse
from kb.server.hints import noted, worded
from kb.server.http import answers, narrowing, shapes
from kb.server.http.parameters import DEEPEST, ListQuery, SearchQuery, next_page
from kb.server.http.state import State
from kb.service.searching import Filters, scope_of
from kb.values import plain

COUNTED = 200
"""Entries among which the values of facets are counted."""

_TIERS = (40, 200, DEEPEST)
_FROM_HIT = ("kind", "operator", "outcome", "evidence", "freshness", "transfer", "license")
_FACETS = ("kind", "operator", "dtype", "outcome", "language", "license", "evidence")
_MEANINGS = {
    "transfer": {
        "exact": "measured on this very device",
        "recompile": "its code runs there once it is compiled",
        "retune": "its code runs there; its parameters were tuned elsewhere",
        "port": "its code does not run there; its idea does, with other instructions",
        "technique": "only the idea carries over",
        "none": "nothing carries over",
    },
    "evidence": {
        "documented": "written down, not measured by anyone named",
        "reported": "somebody published a figure",
        "correct": "our judge accepted its values",
        "measured": "our judge timed it",
        "confirmed": "an independent run agrees",
        "end_to_end": "the whole model was judged",
    },
}


def router(state: State) -> APIRouter:
    """Return the routes.

    Args:
        state: What they share.
    """
    routes = APIRouter(tags=["search"])

    @routes.get("/v1/search", response_model=shapes.Found, responses=shapes.problems(304, 400, 401, 404, 422, 429, 503))
    async def search(request: Request, query: Annotated[SearchQuery, Query()]) -> Response:
        """Find kernels, strategies, tuned parameters and negative results, in the words engineers use."""

        def work() -> Response:
            now = state.resident.state()
            tag = answers.tag_of_request(request, now)
            if answers.has(request, tag):
                return answers.unchanged(tag)
            body, following = state.found.get(query.model_dump_json(), now, lambda: _encoded(state, query))
            return answers.sent(body, tag, {"Link": f'<{following}>; rel="next"'} if following else {})

        return await state.quick(work)

    @routes.get(
        "/v1/entries", response_model=shapes.Listed, responses=shapes.problems(304, 400, 401, 404, 422, 429, 503)
    )
    async def entries(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
        """List the entries in a scope by id."""
        return await state.slow(lambda: listed(state, request, query))

    @routes.get("/v1/facets", response_model=shapes.Facets, responses=shapes.problems(304, 401, 429, 503))
    async def facets(request: Request) -> Response:
        """Say what can be filtered by, and how many entries have each value."""

        def work() -> Response:
            now = state.resident.state()
            tag = answers.tag_of_request(request, now)
            if answers.has(request, tag):
                return answers.unchanged(tag)
            body = state.remembered.get("facets", now, lambda: answers.encoded(state.resident.ask(_facets)))
            return answers.sent(body, tag)

        return await state.quick(work)

    return routes


def listed(state: State, request: Request, query: ListQuery, *, kind: str | None = None) -> Response:
    """Answer with a page of a list.

    Args:
        state: What routes share.
        request: The request.
        query: What it asks for.
        kind: Only this kind, whatever the query says.
    """
    now = state.resident.state()
    tag = answers.tag_of_request(request, now)
    if answers.has(request, tag):
        return answers.unchanged(tag)
    filters = query.filters()
    if kind is not None:
        filters = Filters(kind, *list(vars(filters).values())[1:])

    def read(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        return browse.listing(connection, scope_of(connection, filters), figures=query.figures)

    made = state.remembered.get(
        ("list", filters, query.figures), now, lambda: [plain(one) for one in state.resident.ask(read)]
    )
    rows = narrowed(cast("list[dict[str, Any]]", made), query)
    counts = narrowing.counts_of(rows, _families(state)) if query.counts else None
    return answers.sent(answers.encoded({**paged(rows, request.url.path, query), "counts": counts}), tag)


def narrowed(rows: list[dict[str, Any]], query: ListQuery) -> list[dict[str, Any]]:
    """Return the rows of a list that a query keeps.

    Args:
        rows: With language, evidence and transfer.
        query: What is asked for.
    """
    narrow = query.narrowing()
    if not narrow:
        return rows
    return [row for row in rows if narrow.keeps(row["language"], row["evidence"], row["transfer"])]


def paged(rows: Sequence[object], path: str, query: ListQuery) -> dict[str, Any]:
    """Return one page of rows, with where the next one is."""
    end = query.offset + query.limit
    return {
        "items": rows[query.offset : end],
        "total": len(rows),
        "offset": query.offset,
        "next": next_page(path, query, offset=end) if end < len(rows) else None,
    }


def _encoded(state: State, query: SearchQuery) -> tuple[bytes, str | None]:
    found = _page(state, "/v1/search", query)
    return answers.encoded(found), found["next"]


def _page(state: State, path: str, query: SearchQuery) -> dict[str, Any]:
    end = query.offset + query.limit
    narrow = query.narrowing()
    facts = _facts(state) if narrow or query.counts else {}
    answer, ordered, more = _ranked(state, query, min(end, DEEPEST), lambda hit: _kept(narrow, facts, hit))
    shown = ordered[query.offset : end]
    beyond = more or len(ordered) > end
    emptied = f"nothing of what was found has: {narrow.said()}" if narrow and answer.hits and not ordered else None
    because, notes = emptied or worded(answer.empty_because, "routes"), noted(answer.notes, "routes")
    return {
        **answer.with_(hits=(), empty_because=because, notes=notes).to_json(),
        "hits": [plain(hit) for hit in shown],
        "offset": query.offset,
        "next": next_page(path, query, offset=end) if beyond and end < DEEPEST else None,
        "counts": _counts(state, query, facts) if query.counts else None,
    }


def _facts(state: State) -> dict[str, Any]:
    now = state.resident.state()
    return state.remembered.get("languages", now, lambda: state.resident.ask(narrowing.languages))


def _families(state: State) -> dict[str, tuple[str, ...]]:
    now = state.resident.state()
    return state.remembered.get("families", now, lambda: state.resident.ask(narrowing.families))


def _kept(narrow: narrowing.Narrowing, facts: Mapping[str, Any], hit: Any) -> bool:  # noqa: ANN401 - a hit
    return not narrow or narrow.keeps(facts.get(hit.id, ("", ()))[0], hit.evidence, hit.transfer)


def _ranked(
    state: State, query: SearchQuery, end: int, keep: Callable[[Any], bool]
) -> tuple[Answer, list[Any], bool]:  # fmt: skip
    """Return the hits up to ``end``, one more if there is one, in an order that does not depend on the page.

    How deep a search looks decides what is ranked. So the first tier is ranked as every search ranks it, and deeper
    ones add only what the tiers before them did not have.
    """
    if end < _TIERS[0] and not query.narrowing():
        # Within the first tier the limit changes nothing but how many hits are explained, which costs the most.
        answer = state.resident.search(query.q, filters=query.filters(), limit=end + 1)
        return answer, list(answer.hits[:end]), len(answer.hits) > end
    ordered: dict[str, Any] = {}
    for depth in _TIERS:
        answer = state.resident.search(query.q, filters=query.filters(), limit=depth)
        for hit in answer.hits:
            if keep(hit):
                ordered.setdefault(hit.id, hit)
        if len(answer.hits) < depth or len(ordered) > end or depth == _TIERS[-1]:
            return answer, list(ordered.values()), len(ordered) > end
    raise AssertionError("unreachable")


def _counts(state: State, query: SearchQuery, facts: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    narrow = query.narrowing()
    hits = state.resident.search(query.q, filters=query.filters(), limit=COUNTED).hits
    rows = [
        {**{name: getattr(hit, name) for name in _FROM_HIT}, "language": language, "dtypes": dtypes}
        for hit in hits
        if _kept(narrow, facts, hit)
        for language, dtypes in (facts.get(hit.id, (None, ())),)
    ]
    return narrowing.counts_of(rows, _families(state))


def _facets(connection: sqlite3.Connection) -> dict[str, Any]:
    values: dict[str, dict[str, int]] = {}
    for facet in _FACETS:
        if facet in ("operator", "dtype"):
            table = catalogue.ENTRY_OPERATOR if facet == "operator" else catalogue.ENTRY_DTYPE
            sql = f"SELECT t.{facet} FROM {table} AS t JOIN {catalogue.ENTRY} AS e ON e.rowid = t.entry_id WHERE e.withdrawn IS NULL"  # noqa: S608, E501
        else:
            sql = f"SELECT {facet} FROM {catalogue.ENTRY} WHERE withdrawn IS NULL"  # noqa: S608
        values[facet] = narrowing.counted(row[0] for row in connection.execute(sql))
    total = connection.execute(f"SELECT count(*) FROM {catalogue.ENTRY} WHERE withdrawn IS NULL").fetchone()[0]  # noqa: S608
    for name, known in (("kind", vocabulary.KINDS), ("outcome", vocabulary.OUTCOMES)):
        values[name] = {one: values[name].get(one, 0) for one in known}
    members = narrowing.families(connection)
    values["family"] = narrowing.counted(
        family
        for operator, number in values["operator"].items()
        for family in members.get(operator, ())
        for _ in range(number)
    )
    values["device"] = dict.fromkeys(hardware.known_names(), 0)
    return {"total": total, "values": values, "meanings": _MEANINGS}
