"""What changes something: judgements, submissions, outcomes. Each needs a token with its scope."""

import threading
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from pydantic import AfterValidator, Field

from kb.models.vocabulary import DTYPES, LANGUAGES, OUTCOMES
from kb.plain import neutral
from kb.server.arguments import DTYPE_NAMES
from kb.server.http import answers, shapes
from kb.server.http.access import Caller
from kb.server.http.judging import Job
from kb.server.http.problems import asked_for
from kb.server.http.state import State
from kb.service import judging_apart, submission
from kb.service.judging_apart import Order, Progress
from kb.values import plain

_FAULTS = shapes.problems(400, 401, 403, 404, 413, 415, 422, 429, 503)
_FRESH = {"Cache-Control": "no-store"}
_THERE = {"description": "The same was reported before: nothing was stored, and new is false."}
_EXAMPLE = "import torch\n\n\ndef run(x):\n    return torch.softmax(x.float(), dim=-1).to(x.dtype)\n"
_DEVICE = r"^(cpu|cuda:[0-9]{1,2})$"
_LONGEST = submission.MOST_TEXT

Name = Annotated[str, InPath(pattern="^[0-9a-f]{16}$", description="Its id.")]


def _dtype(given: str) -> str:
    given = DTYPE_NAMES.get(given.lower(), given)
    if given not in DTYPES:
        raise ValueError(f"unknown dtype; known: {', '.join(DTYPES)}")
    return given


Dtypes = Annotated[
    list[Annotated[str, AfterValidator(_dtype)]], Field(max_length=20, description="Judge these dtypes only.")
]
Word = Annotated[str, Field(min_length=1, max_length=80)]
Prose = Annotated[str, Field(max_length=_LONGEST)]
Source = Annotated[str, Field(max_length=judging_apart.LARGEST_BYTES, examples=[_EXAMPLE])]


class JudgementOrder(shapes.Shape):
    """A candidate to be judged."""

    operator: Word = Field(examples=["softmax"], description="What it should compute: GET /v1/operators.")
    source: Source = Field(description="Python with a function run(…), at most 1 MiB.")
    device: str = Field("cpu", pattern=_DEVICE)
    dtypes: Annotated[Dtypes, Field(min_length=1)] | None = None
    ghosts: bool = Field(True, description="Replay with each kernel left out in turn.")


class FigureMade(shapes.Shape):
    """One time that the submitter measured; filed as a claim, never as a measurement."""

    latency_us: float = Field(gt=0, allow_inf_nan=False)
    device: Word
    workload: Annotated[str, Field(min_length=1, max_length=300)]
    baseline: Annotated[str, Field(max_length=200)] | None = None
    baseline_us: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class SubmissionOrder(shapes.Shape):
    """A candidate with what is claimed of it, or a negative result with its condition."""

    title: str = Field(min_length=3, max_length=80, examples=["Softmax in float32"])
    claim: Prose = Field(min_length=10, description="What it does, why it helps, when not to use it.")
    operator: Word | None = Field(None, examples=["softmax"])
    source: Source | None = Field(None, description="The candidate; null for a negative result without code.")
    outcome: Literal[OUTCOMES] = "works"  # type: ignore[valid-type]  # the vocabulary is a tuple of words
    hypothesis: Prose | None = None
    condition: Prose | None = Field(None, description="Of a negative result: when it holds. Required there.")
    effect: Prose | None = Field(None, description="Of a negative result: what happened. Required there.")
    dtypes: Dtypes = Field([])
    arch: list[Word] = Field([], max_length=20, examples=[["sm_90"]])
    language: Literal[LANGUAGES] | None = None  # type: ignore[valid-type]
    parents: list[Annotated[str, Field(max_length=300)]] = Field([], max_length=20)
    tags: list[Word] = Field([], max_length=20)
    license: Word | None = Field(None, description="SPDX id; null reads it from the source. One has to say it.")
    device: str = Field("cpu", pattern=_DEVICE)
    figure: FigureMade | None = None

    def made(self) -> submission.Submission:
        """Return it as the use case takes it."""
        given = self.model_dump(exclude={"figure"})
        lists = {name: tuple(given[name]) for name in ("dtypes", "arch", "parents", "tags")}
        figure = None if self.figure is None else submission.Figure(**self.figure.model_dump())
        return submission.Submission(**{**given, **lists, "figure": figure})


class JobState(shapes.Shape):
    """How far a judgement or a submission is."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled", "timed_out"]
    operator: str | None
    device: str
    before: int | None = Field(description="Jobs before this one, while it waits.")
    progress: str | None
    created_utc: str
    started_utc: str | None
    ended_utc: str | None
    verdict: Literal["accepted", "rejected", "needs_review"] | None
    error: dict[str, Any] | None = Field(description="Why there is no result; says nothing about the candidate.")


class JudgementState(JobState):
    """How far a judgement is."""

    report: dict[str, Any] | None = Field(description="All that the judge found; null until it is done.")


class SubmissionState(JobState):
    """How far a submission is."""

    title: str
    submitted: dict[str, Any] | None = Field(
        description="What came of it: state (filed, unchanged, refused), id, branch, commit, reasons, next_step."
    )


class Judgements(shapes.Shape):
    """The judgements of one token, newest first, without their reports."""

    items: list[JudgementState]


class Submissions(shapes.Shape):
    """The submissions of one token, newest first."""

    items: list[SubmissionState]


class OutcomeReport(shapes.Shape):
    """What happened when somebody used an entry."""

    entry: str = Field(max_length=300, examples=["kernel/rmsnorm/row-per-cta"])
    target: str = Field(max_length=300, examples=["target/sam-3-1/bf16-h100"])
    result: Literal["won", "neutral", "lost", "not_applied"] = Field(examples=["neutral"])
    record: str | None = Field(None, max_length=400, description="Path of a record below entries/; needed for won.")
    note: str | None = Field(None, max_length=400)


def router(state: State) -> APIRouter:
    """Return the routes.

    Args:
        state: What routes share.
    """
    routes = APIRouter(tags=["writing"])
    _judgements(routes, state)
    _submissions(routes, state)

    @routes.post("/v1/outcomes", status_code=201, responses={**_FAULTS, 200: _THERE})
    async def outcome(report: OutcomeReport) -> Response:
        """Report what came of using an entry: 201, ``new`` is true; the same again stores nothing: 200, it is false."""

        def work() -> Response:
            with asked_for():
                made = state.knowledge.outcome(**report.model_dump())
            code = 201 if made.new else 200
            return Response(answers.encoded(plain(made)), code, media_type="application/json", headers=_FRESH)

        return await state.slow(work)

    return routes


def _judgements(routes: APIRouter, state: State) -> None:
    @routes.post("/v1/judgements", status_code=202, response_model=JudgementState, responses=_FAULTS)
    async def order(request: Request, asked: JudgementOrder) -> Response:
        """Have a candidate judged, in a sandbox, as soon as it is its turn; see Location for how far it is."""
        dtypes = tuple(asked.dtypes) if asked.dtypes else None
        ordered = Order(asked.operator, asked.source, asked.device, dtypes, asked.ghosts)
        judging_apart.check(ordered)

        def work(step: Progress, given_up: threading.Event) -> Mapping[str, Any]:
            return state.queue.judge(ordered, step, given_up)

        about = {"operator": asked.operator, "device": asked.device}
        return _accepted(state, state.queue.add("judgement", _owner(request), about, work))

    @routes.get("/v1/judgements", response_model=Judgements, responses=_FAULTS)
    async def orders(request: Request) -> Response:
        """List the judgements of this token that are still known, newest first."""
        rows = [{**_shown(state, one), "report": None} for one in state.queue.all_of("judgement", _owner(request))]
        return Response(answers.encoded({"items": rows}), media_type="application/json", headers=_FRESH)

    @routes.get("/v1/judgements/{name}", response_model=JudgementState, responses=_FAULTS)
    async def one(request: Request, name: Name) -> Response:
        """Say how far a judgement is; with the report once there is a verdict."""
        return _now(state, state.queue.get("judgement", _owner(request), name))

    @routes.delete("/v1/judgements/{name}", response_model=JudgementState, responses=_FAULTS)
    async def cancel(request: Request, name: Name) -> Response:
        """End a judgement with all its processes; one that is over stays as it is."""
        found = state.queue.get("judgement", _owner(request), name)
        await state.queue.cancel(found)
        return _now(state, found)


def _submissions(routes: APIRouter, state: State) -> None:
    @routes.post("/v1/submissions", status_code=202, response_model=SubmissionState, responses=_FAULTS)
    async def submit(request: Request, asked: SubmissionOrder) -> Response:
        """Submit a candidate, or a negative result: judged if it has code, then one commit on a branch.

        The same content again is not filed twice, and nothing is pushed. Code needs the scope judge too.
        """
        caller: Caller = request.state.caller
        made = asked.made()
        if made.source is not None:
            caller.require("judge")
            judging_apart.check(Order(str(made.operator), made.source, made.device))
        submission.check(made)

        def work(step: Progress, given_up: threading.Event) -> Mapping[str, Any]:
            from kb.service import submitting

            done = submitting.submit(
                state.root,
                made,
                author=caller.name or "anonymous",
                branch=state.settings.branch,
                judge=state.queue.judge,
                progress=step,
                given_up=given_up,
            )
            return done.to_json()

        about = {"operator": asked.operator, "device": asked.device, "title": asked.title}
        return _accepted(state, state.queue.add("submission", _owner(request), about, work))

    @routes.get("/v1/submissions", response_model=Submissions, responses=_FAULTS)
    async def orders(request: Request) -> Response:
        """List the submissions of this token that are still known, newest first."""
        rows = [_shown(state, one) for one in state.queue.all_of("submission", _owner(request))]
        return Response(answers.encoded({"items": rows}), media_type="application/json", headers=_FRESH)

    @routes.get("/v1/submissions/{name}", response_model=SubmissionState, responses=_FAULTS)
    async def one(request: Request, name: Name) -> Response:
        """Say how far a submission is; with what came of it once it is done."""
        return _now(state, state.queue.get("submission", _owner(request), name))

    @routes.delete("/v1/submissions/{name}", response_model=SubmissionState, responses=_FAULTS)
    async def cancel(request: Request, name: Name) -> Response:
        """End a submission that is not filed yet; one that is over stays as it is."""
        found = state.queue.get("submission", _owner(request), name)
        await state.queue.cancel(found)
        return _now(state, found)


def _owner(request: Request) -> str:
    caller: Caller = request.state.caller
    return caller.key


def _accepted(state: State, job: Job) -> Response:
    headers = {"Location": f"/v1/{job.kind}s/{job.id}", "Retry-After": "1", **_FRESH}
    return Response(answers.encoded(_shown(state, job)), 202, media_type="application/json", headers=headers)


def _now(state: State, job: Job) -> Response:
    headers = _FRESH if job.is_over else {**_FRESH, "Retry-After": "1"}
    return Response(answers.encoded(_shown(state, job)), media_type="application/json", headers=headers)


def _shown(state: State, job: Job) -> dict[str, Any]:
    made = "report" if job.kind == "judgement" else "submitted"
    return {
        "id": job.id,
        "state": job.state,
        **job.about,
        "before": state.queue.place_of(job),
        "progress": None if job.progress is None else neutral(job.progress),
        "created_utc": job.created_utc,
        "started_utc": job.started_utc,
        "ended_utc": job.ended_utc,
        "verdict": None if job.result is None else job.result["verdict"],
        made: job.result,
        "error": job.error,
    }
