"""One entry over HTTP: facts, code, versions, evidence, figures, lineage."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath

from kb.errors import EntryFormatError, EntryNotFoundError, HistoryError
from kb.server.hints import stepwise
from kb.server.http import answers, rendering, shapes
from kb.server.http.parameters import Kind, Slug, Topic, VersionNumber
from kb.server.http.state import State
from kb.service import history, lineage
from kb.service.evidence import proven
from kb.service.figures import figures_of
from kb.service.reading import contents
from kb.service.searching import show_root
from kb.store import layout, records
from kb.values import plain

_ROOT = "/v1/entries/{kind}/{topic}/{slug}"
_FAULTS = shapes.problems(304, 400, 401, 404, 422, 429, 503)
_PARTS = ("versions", "diff", "evidence", "figures", "lineage", "records")

Number = Annotated[int | None, Query(ge=1, le=9_999_999, description="A version; the present one if left out.")]
Steps = Annotated[int, Query(ge=0, le=10, description="Most steps away from the entry.")]
Device = Annotated[str | None, Query(max_length=80, description="Only on this device or family.")]
Record = Annotated[
    str, InPath(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}-[a-z0-9_]{1,20}-[0-9a-f]{12}\.json$", max_length=60)
]


def router(state: State) -> APIRouter:
    """Return the routes.

    Args:
        state: What they share.
    """
    routes = APIRouter(tags=["entries"])
    _versioned(routes, state)
    _proven(routes, state)
    return routes


def _answer(request: Request, make: Callable[[], object]) -> Response:
    return answers.by_content(request, answers.encoded(make()))


def _versioned(routes: APIRouter, state: State) -> None:
    @routes.get(_ROOT, response_model=shapes.Entry, responses=_FAULTS)
    async def entry(request: Request, kind: Kind, topic: Topic, slug: Slug, version: Number = None) -> Response:
        """Return one entry with its readme and code; an older version comes from git."""
        name = _id(kind, topic, slug)
        return await state.slow(lambda: _answer(request, lambda: _entry(state, name, version)))

    @routes.get(f"{_ROOT}/rendered", response_model=shapes.Rendered, responses=_FAULTS)
    async def rendered(request: Request, kind: Kind, topic: Topic, slug: Slug, version: Number = None) -> Response:
        """Return the readme as a tree and the code as coloured lines; text all of it, never HTML."""
        name = _id(kind, topic, slug)

        def work() -> Response:
            made = state.remembered.get(
                ("rendered", name, version), state.resident.state(), lambda: _rendered(state, name, version)
            )
            return answers.by_content(request, made)

        return await state.slow(work)

    @routes.get(f"{_ROOT}/versions", response_model=shapes.Versions, responses=_FAULTS)
    async def versions(request: Request, kind: Kind, topic: Topic, slug: Slug) -> Response:
        """List all versions of an entry, newest first."""
        name = _id(kind, topic, slug)
        return await state.slow(lambda: _answer(request, lambda: _versions(state, name)))

    @routes.get(f"{_ROOT}/diff", response_model=shapes.Diff, responses=_FAULTS)
    async def diff(
        request: Request, kind: Kind, topic: Topic, slug: Slug, old: VersionNumber, new: Number = None
    ) -> Response:
        """Compare two versions; the newer one is the present one if left out."""
        name = _id(kind, topic, slug)
        to = name if new is None else f"{name}@{new}"

        def make() -> dict[str, Any]:
            return {"old": f"{name}@{old}", "new": to, "lines": list(history.diff(state.root, f"{name}@{old}", to))}

        return await state.slow(lambda: _answer(request, make))


def _proven(routes: APIRouter, state: State) -> None:
    @routes.get(f"{_ROOT}/evidence", response_model=shapes.Proven, responses=_FAULTS)
    async def evidence(request: Request, kind: Kind, topic: Topic, slug: Slug, device: Device = None) -> Response:
        """Say what is proven of an entry, where, how fresh that is, and what would raise it."""
        name = _id(kind, topic, slug)
        return await state.slow(
            lambda: _answer(request, lambda: stepwise(asdict(proven(state.root, name, device=device)), "routes"))
        )

    @routes.get(f"{_ROOT}/figures", response_model=shapes.Figures, responses=_FAULTS)
    async def figures(request: Request, kind: Kind, topic: Topic, slug: Slug) -> Response:
        """Return latencies by shape with floors, peaks and published figures, ready to be drawn."""
        name = _id(kind, topic, slug)
        return await state.slow(lambda: _answer(request, lambda: figures_of(state.root, show_root(state.root, name))))

    @routes.get(f"{_ROOT}/lineage", response_model=shapes.Lineage, responses=_FAULTS)
    async def ancestry(request: Request, kind: Kind, topic: Topic, slug: Slug, depth: Steps = 3) -> Response:
        """Return what an entry came from and what came of it."""
        name = _id(kind, topic, slug)

        def make() -> dict[str, Any]:
            whole = state.remembered.get("lineage", state.resident.state(), lambda: state.resident.ask(lineage.graph))
            return asdict(lineage.around(whole, name, depth=depth))

        return await state.slow(lambda: _answer(request, make))

    @routes.get(f"{_ROOT}/records/{{record}}", responses=_FAULTS)
    async def one_record(request: Request, kind: Kind, topic: Topic, slug: Slug, record: Record) -> Response:
        """Return one record as the judge wrote and signed it."""
        name = _id(kind, topic, slug)
        return await state.slow(lambda: _answer(request, lambda: _record(state, name, record)))


def _id(kind: str, topic: str, slug: str) -> str:
    """Return an id, or say that there is no such entry: what is none cannot be looked for in files or in git."""
    try:
        return str(layout.parse_id(f"{kind}/{topic}/{slug}"))
    except EntryFormatError as error:
        raise EntryNotFoundError(error.message, hint=error.hint) from error


def _entry(state: State, name: str, version: int | None) -> dict[str, Any]:
    if version is None:
        found = state.resident.ask(lambda connection: _browse(connection, name))
    else:
        found = show_root(state.root, f"{name}@{version}")
    files = contents(state.root, found)
    shown = {key: plain(value) for key, value in found.items() if key != "contents"}
    here = f"/v1/entries/{name}"
    return {**shown, "contents": files, "links": {part: f"{here}/{part}" for part in _PARTS[:-1]}}


def _rendered(state: State, name: str, version: int | None) -> bytes:
    found = _entry(state, name, version)
    contents = found["contents"] or {}
    code = {file: rendering.coloured(text, file.rpartition(".")[2]) for file, text in contents.items()}
    shown = {"id": found["id"], "version": found["version"], "readme": rendering.tree(found["readme"]), "files": code}
    return answers.encoded(shown)


def _browse(connection: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 - a connection
    from kb.retrieval import browse

    return browse.get(connection, name)


def _versions(state: State, name: str) -> dict[str, Any]:
    try:
        found = history.history(state.root, name)
        complete, note = not history.is_incomplete(state.root), None
    except HistoryError as error:
        now = show_root(state.root, name)
        facts = {key: now[key] for key in ("version", "digest", "title")}
        unknown = dict.fromkeys(("commit", "date_utc", "author", "subject"))
        return {"id": name, "versions": [{**unknown, **facts}], "complete": False, "note": error.message}
    return {"id": name, "versions": [asdict(one) for one in found], "complete": complete, "note": note}


def _record(state: State, name: str, record: str) -> dict[str, Any]:
    folder = layout.folder_of(state.root.entries, name) / layout.RECORDS
    if not (folder / record).is_file():
        raise EntryNotFoundError(f"{name} has no record {record}", hint=f"GET /v1/entries/{name}/evidence lists them")
    return records.read_one(state.root.entries, name, record).raw
