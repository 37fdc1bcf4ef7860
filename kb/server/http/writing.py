"""What changes something: judgements and outcomes. Each needs a token with its scope."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from pydantic import AfterValidator, Field

from kb.errors import UnknownOperatorError
from kb.models.vocabulary import DTYPES
from kb.plain import neutral
from kb.server.http import answers, shapes
from kb.server.http.access import Caller
from kb.server.http.judging import Judgement, Order, Queue
from kb.server.http.problems import asked_for
from kb.server.http.state import State
from kb.validators.operators.names import NAMES
from kb.values import plain

_FAULTS = shapes.problems(400, 401, 403, 404, 413, 422, 429, 503)
_SOURCE_BYTES = 1 << 20
_EXAMPLE = "import torch\n\n\ndef run(x):\n    return torch.softmax(x.float(), dim=-1).to(x.dtype)\n"

Name = Annotated[str, InPath(pattern="^[0-9a-f]{16}$", description="Id of a judgement.")]


def _text(given: str) -> str:
    try:
        size = len(given.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ValueError("expected text that UTF-8 can write") from error
    if size > _SOURCE_BYTES:
        raise ValueError(f"a candidate has at most {_SOURCE_BYTES:,} bytes")
    return given


def _dtype(given: str) -> str:
    if given not in DTYPES:
        raise ValueError(f"unknown dtype; known: {', '.join(DTYPES)}")
    return given


class JudgementOrder(shapes.Shape):
    """A candidate to be judged."""

    operator: str = Field(max_length=80, examples=["softmax"], description="What it should compute: GET /v1/operators.")
    source: Annotated[str, AfterValidator(_text)] = Field(
        min_length=1, examples=[_EXAMPLE], description="Python with a function run(…), at most 1 MiB."
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda:[0-9]{1,2})$")
    dtypes: list[Annotated[str, AfterValidator(_dtype)]] | None = Field(
        None, min_length=1, max_length=20, description="Judge these dtypes only."
    )
    ghosts: bool = Field(True, description="Replay with each kernel left out in turn.")


class JudgementState(shapes.Shape):
    """How far a judgement is."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled", "timed_out"]
    operator: str
    device: str
    before: int | None = Field(description="Judgements before this one, while it waits.")
    progress: str | None
    created_utc: str
    started_utc: str | None
    ended_utc: str | None
    verdict: Literal["accepted", "rejected", "needs_review"] | None
    report: dict[str, Any] | None = Field(description="All that the judge found; null until it is done.")
    error: dict[str, Any] | None = Field(description="Why there is no verdict; says nothing about the candidate.")


class Judgements(shapes.Shape):
    """The judgements of one token, newest first, without their reports."""

    items: list[JudgementState]


class OutcomeReport(shapes.Shape):
    """What happened when somebody used an entry."""

    entry: str = Field(max_length=300, examples=["kernel/rmsnorm/row-per-cta"])
    target: str = Field(max_length=300, examples=["target/sam-3-1/bf16-h100"])
    result: Literal["won", "neutral", "lost", "not_applied"] = Field(examples=["neutral"])
    record: str | None = Field(None, max_length=400, description="Path of a record below entries/; needed for won.")
    note: str | None = Field(None, max_length=400)


def router(state: State, queue: Queue) -> APIRouter:
    """Return the routes.

    Args:
        state: What routes share.
        queue: Where judgements wait.
    """
    routes = APIRouter(tags=["writing"])
    _judgements(routes, queue)
    _one_judgement(routes, queue)

    @routes.post("/v1/outcomes", status_code=201, responses=_FAULTS)
    async def outcome(report: OutcomeReport) -> Response:
        """Report what came of using an entry; the same report again stores nothing."""
        from kb.service.outcomes import report_outcome

        def work() -> Response:
            with asked_for():
                made = report_outcome(
                    state.root,
                    report.entry,
                    target=report.target,
                    result=report.result,
                    record=report.record,
                    note=report.note,
                )
            return Response(answers.encoded(plain(made)), 201, media_type="application/json", headers=_FRESH)

        return await state.slow(work)

    return routes


_FRESH = {"Cache-Control": "no-store"}


def _judgements(routes: APIRouter, queue: Queue) -> None:
    @routes.post("/v1/judgements", status_code=202, response_model=JudgementState, responses=_FAULTS)
    async def order(request: Request, asked: JudgementOrder) -> Response:
        """Have a candidate judged, in a sandbox, as soon as it is its turn; see Location for how far it is."""
        if asked.operator not in NAMES:
            raise UnknownOperatorError(f"no operator is called {asked.operator!r}", hint="GET /v1/operators")
        dtypes = tuple(asked.dtypes) if asked.dtypes else None
        made = queue.add(_owner(request), Order(asked.operator, asked.source, asked.device, dtypes, asked.ghosts))
        headers = {"Location": f"/v1/judgements/{made.id}", "Retry-After": "1", **_FRESH}
        return Response(_encoded(queue, made), 202, media_type="application/json", headers=headers)

    @routes.get("/v1/judgements", response_model=Judgements, responses=_FAULTS)
    async def orders(request: Request) -> Response:
        """List the judgements of this token that are still known, newest first."""
        rows = [{**_shown(queue, one), "report": None} for one in queue.all_of(_owner(request))]
        return Response(answers.encoded({"items": rows}), media_type="application/json", headers=_FRESH)


def _one_judgement(routes: APIRouter, queue: Queue) -> None:
    @routes.get("/v1/judgements/{name}", response_model=JudgementState, responses=_FAULTS)
    async def state_of(request: Request, name: Name) -> Response:
        """Say how far a judgement is; with the report once there is a verdict."""
        found = queue.get(_owner(request), name)
        headers = _FRESH if found.is_over else {**_FRESH, "Retry-After": "1"}
        return Response(_encoded(queue, found), media_type="application/json", headers=headers)

    @routes.delete("/v1/judgements/{name}", response_model=JudgementState, responses=_FAULTS)
    async def cancel(request: Request, name: Name) -> Response:
        """End a judgement with all its processes; one that is over stays as it is."""
        found = queue.get(_owner(request), name)
        await queue.cancel(found)
        return Response(_encoded(queue, found), media_type="application/json", headers=_FRESH)


def _owner(request: Request) -> str:
    caller: Caller = request.state.caller
    return caller.key


def _encoded(queue: Queue, one: Judgement) -> bytes:
    return answers.encoded(_shown(queue, one))


def _shown(queue: Queue, one: Judgement) -> dict[str, Any]:
    return {
        "id": one.id,
        "state": one.state,
        "operator": one.order.operator,
        "device": one.order.device,
        "before": queue.place_of(one),
        "progress": None if one.progress is None else neutral(one.progress),
        "created_utc": one.created_utc,
        "started_utc": one.started_utc,
        "ended_utc": one.ended_utc,
        "verdict": None if one.report is None else one.report["verdict"],
        "report": one.report,
        "error": one.error,
    }
