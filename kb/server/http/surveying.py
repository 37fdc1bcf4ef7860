"""What spans entries: operators, targets with their seed plans, campaigns, hardware, the matrix."""

import sqlite3
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath

from kb import catalogue, hardware
from kb.errors import UnknownOperatorError
from kb.server.http import answers, operators, shapes
from kb.server.http.parameters import Devices, ListQuery, Slug, Topic
from kb.server.http.problems import asked_for
from kb.server.http.searching import listed, narrowed, paged
from kb.server.http.state import State
from kb.service.status import Status, status
from kb.values import plain

_FAULTS = shapes.problems(304, 400, 401, 404, 422, 429, 503)

Operator = Annotated[str, InPath(max_length=80, examples=["rmsnorm"], description="An operator of the judge.")]
Budget = Annotated[int, Query(ge=500, le=200_000, description="Tokens that the plan may take.")]
Asked = Annotated[str | None, Query(max_length=80, description="Another device than the target's.")]
Use = Annotated[Literal["commercial", "research"], Query(description="What the entries are to be used for.")]


class MatrixQuery(ListQuery):
    """A page of the matrix."""

    devices: Devices = None


def router(state: State) -> APIRouter:
    """Return the routes.

    Args:
        state: What they share.
    """
    routes = APIRouter(tags=["overview"])
    _of_operators(routes, state)
    _of_targets(routes, state)
    _of_hardware(routes, state)
    return routes


def _of_operators(routes: APIRouter, state: State) -> None:
    @routes.get("/v1/operators", response_model=shapes.Operators, responses=_FAULTS)
    async def all_operators(request: Request) -> Response:
        """List the operators that the judge knows, with their specs; the first call may take seconds."""

        def work() -> Response:
            sheet, described = operators.sheet(state)
            counts = state.resident.ask(_by_operator)
            rows = [{**one, "entries": counts.get(one["name"], 0)} for one in sheet]
            return answers.by_content(request, answers.encoded({"items": rows, "described": described}))

        return await state.slow(work)

    @routes.get("/v1/operators/{operator}", responses=_FAULTS)
    async def one_operator(request: Request, operator: Operator) -> Response:
        """Describe one operator: signature, axes, error bound, workloads, baselines."""

        def work() -> Response:
            found = {one["name"]: one for one in operators.sheet(state)[0]}.get(operator)
            if found is None:
                raise UnknownOperatorError(f"no operator is called {operator!r}", hint="GET /v1/operators")
            count = state.resident.ask(_by_operator).get(operator, 0)
            return answers.by_content(request, answers.encoded({**found, "entries": count}))

        return await state.slow(work)


def _of_targets(routes: APIRouter, state: State) -> None:
    @routes.get("/v1/targets", response_model=shapes.Listed, responses=_FAULTS)
    async def targets(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
        """List the targets: fixed deployments of a model."""
        return await state.slow(lambda: listed(state, request, query, kind="target"))

    @routes.get("/v1/targets/{topic}/{slug}/plan", responses=shapes.problems(304, 400, 401, 404, 422, 429, 501, 503))
    async def plan(
        request: Request,
        topic: Topic,
        slug: Slug,
        budget_tokens: Budget = 8_000,
        device: Asked = None,
        use: Use = "commercial",
    ) -> Response:
        """Return the seed plan of a target: ranked entries for each of its operators, gaps and warnings."""

        def work() -> Response:
            now = state.resident.state()
            name = ("plan", topic, slug, budget_tokens, device, use)
            body = state.remembered.get(
                name, now, lambda: _plan(state, f"target/{topic}/{slug}", budget_tokens, device, use)
            )
            return answers.by_content(request, body)

        return await state.slow(work)

    @routes.get("/v1/campaigns", response_model=shapes.Listed, responses=_FAULTS)
    async def campaigns(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
        """List the campaigns: optimisation runs on targets, with what they cost and achieved."""
        return await state.slow(lambda: listed(state, request, query, kind="campaign"))


def _of_hardware(routes: APIRouter, state: State) -> None:
    @routes.get("/v1/hardware", response_model=shapes.Devices, responses=_FAULTS)
    async def devices(request: Request) -> Response:
        """Return the hardware table: devices, architectures, features and peaks, each figure with its source."""
        return await state.quick(lambda: answers.by_content(request, answers.encoded(_hardware())))

    @routes.get("/v1/matrix", response_model=shapes.Matrix, responses=_FAULTS)
    async def matrix(request: Request, query: Annotated[MatrixQuery, Query()]) -> Response:
        """Say how every entry reaches every device and what is proven there."""
        return await state.slow(lambda: _matrix(state, request, query))


def _by_operator(connection: sqlite3.Connection) -> dict[str, int]:
    sql = f"SELECT operator, count(*) FROM {catalogue.ENTRY_OPERATOR} GROUP BY operator"  # noqa: S608
    return dict(connection.execute(sql).fetchall())


def _plan(state: State, target: str, budget_tokens: int, device: str | None, use: str) -> bytes:
    from kb.service.seeding import seed_target

    with asked_for():
        made = seed_target(state.root, target, budget_tokens=budget_tokens, device=device, use=use)
    return answers.encoded(plain(made))


def _hardware() -> dict[str, Any]:
    rows = [
        {
            "name": each.name,
            "device_names": list(each.device_names),
            "vendor": each.vendor,
            "arch": each.arch,
            "features": sorted(each.features),
            "figures": {name: plain(figure) for name, figure in sorted(each.figures.items())},
        }
        for each in hardware.devices()
    ]
    families: dict[str, list[str]] = {}
    for name in hardware.known_names():
        members = [member.name for member in hardware.resolve(name).members]
        if len(members) > 1:
            families[name] = members
    return {"items": rows, "families": families}


def _matrix(state: State, request: Request, query: MatrixQuery) -> Response:
    now = state.resident.state()
    tag = answers.tag_of_request(request, now)
    if answers.has(request, tag):
        return answers.unchanged(tag)
    asked = tuple(dict.fromkeys(query.devices or ()))
    whole: Status = state.remembered.get(("matrix", asked), now, lambda: status(state.root, asked))
    wanted = {row["id"]: row for row in narrowed(_listing(state, now, query), query)}
    rows = [
        {
            **{name: wanted[row.id][name] for name in ("id", "version", "title", "kind", "operator", "outcome")},
            "withdrawn": row.withdrawn,
            "cells": [
                {"transfer": c.transfer, "evidence": c.evidence, "freshness": c.freshness, "measured": c.measured}
                for c in row.cells
            ],
        }
        for row in whole.rows
        if row.id in wanted
    ]
    page = paged(rows, request.url.path, query)
    found = {"devices": whole.devices, "levels": whole.levels, "freshness": whole.freshness, **page}
    return answers.sent(answers.encoded(plain(found)), tag)


def _listing(state: State, now: str, query: MatrixQuery) -> list[dict[str, Any]]:
    from kb.retrieval import browse
    from kb.service.searching import scope_of

    filters = query.filters()

    def read(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        return browse.listing(connection, scope_of(connection, filters))

    made = state.remembered.get(("list", filters, False), now, lambda: [plain(one) for one in state.resident.ask(read)])
    return cast("list[dict[str, Any]]", made)
