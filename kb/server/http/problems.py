"""Errors as RFC 9457 problem documents: what was wanted, what was found, and the next step."""

import difflib
import http
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from kb import errors
from kb.errors import KbError
from kb.plain import neutral
from kb.server.hints import worded

MEDIA_TYPE = "application/problem+json"

_STATUS: Sequence[tuple[type[KbError], int]] = (
    (errors.EntryNotFoundError, 404),
    (errors.HistoryError, 404),
    (errors.UnknownOperatorError, 404),
    (errors.DeviceUnavailableError, 404),
    (errors.EntryChangedError, 409),
    (errors.EntryFormatError, 422),
    (errors.EmbedderUnavailableError, 501),
    (errors.RetrievalError, 400),
    (errors.LicenseError, 422),
    (errors.EvidenceRefusedError, 422),
    (errors.StoreError, 503),
    (errors.ValidatorError, 501),
)
"""First match counts; every other error of ours is a fault of the server's set-up."""

_LONGEST = 2_000
_DESCRIBED = "GET /openapi.json describes every route"
AGENTS = (
    "point an MCP client here; it posts JSON-RPC with Content-Type: application/json and "
    "Accept: application/json, text/event-stream"
)
NO_HTTP = "send HTTP/1.1 with one Host header; a body has a Content-Length in digits, or well-formed chunks"
"""The next step of who sends what cannot be parsed."""


class Problem(Exception):  # noqa: N818 - the name that RFC 9457 gives it
    """A refusal with a status of its own.

    Args:
        status: HTTP status, 4xx or 5xx.
        detail: What was wanted and what was found.
        hint: The next step.
        headers: Further headers of the response.
        more: Further members of the document.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = dict(more or {})


def document(
    status: int, detail: str, *, hint: str | None = None, error: str | None = None, **more: object
) -> dict[str, Any]:  # fmt: skip
    """Return a problem document; all of them have the same members, whoever found the fault.

    Args:
        status: HTTP status.
        detail: What was wanted and what was found; control characters are replaced, and it is cut to 2,000.
        hint: The next step; what it says in commands of the shell is said in routes. None says where all is described.
        error: Name of the fault for programs; that of the status if None.
        more: Further members.
    """
    phrase = http.HTTPStatus(status).phrase
    return {
        "type": "about:blank",
        "title": phrase,
        "status": status,
        "detail": neutral(detail)[:_LONGEST],
        "hint": neutral(worded(hint, "routes") or _DESCRIBED)[:_LONGEST],
        "error": error or re.sub("[^A-Za-z]", "", phrase.title()),
        **more,
    }


def response(problem: Problem) -> JSONResponse:
    """Return a problem as a response."""
    body = document(problem.status, problem.detail, hint=problem.hint, **problem.more)
    headers = {"Cache-Control": "no-store", **problem.headers}
    return JSONResponse(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def of_error(error: KbError) -> Problem:
    """Return the problem that an error of ours is to a client."""
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    headers = {"Retry-After": "2"} if status == 503 else {}
    return Problem(status, error.message, hint=error.hint, headers=headers, more={"error": type(error).__name__})


@contextmanager
def asked_for() -> Iterator[None]:
    """Blame the request for what use cases call a setting: they check what a client gave as if a user had set it.

    Raises:
        Problem: 422 in place of a ``ConfigError``.
    """
    try:
        yield
    except errors.ConfigError as error:
        raise Problem(422, error.message, hint=error.hint, more={"error": type(error).__name__}) from error


def plainly(status: int, said: str, path: str, headers: Mapping[str, str]) -> JSONResponse:
    """Return in our form what something below the routes says in plain text.

    Args:
        status: Of its answer.
        said: Its text.
        path: Of the request.
        headers: Of its answer; those that say what to do next are kept.
    """
    kept = {name: value for name, value in headers.items() if name in ("allow", "retry-after", "www-authenticate")}
    hint = AGENTS if path == "/mcp" else None
    return response(Problem(status, said or http.HTTPStatus(status).phrase, hint=hint, headers=kept))


def install(app: FastAPI) -> None:
    """Make an application answer every error as a problem document."""

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class alone
        return response(error)

    async def ours(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, KbError)  # noqa: S101
        return response(of_error(error))

    async def framework(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101
        return response(_framework(app, request, error))

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        return response(_invalid(request, error))

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(KbError, ours)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, invalid)


def _framework(app: FastAPI, request: Request, error: HTTPException) -> Problem:
    """Say in our form what the framework found: no such route, or another method than it takes."""
    path, method = request.url.path, request.method
    headers = dict(error.headers or {})
    takes = _methods(app, path)
    # What no route answers goes to the page's files, which know of no path that only takes other methods.
    if error.status_code == 405 or (error.status_code == 404 and takes and method not in takes):
        headers["Allow"] = ", ".join(takes or ("GET", "HEAD"))
        return Problem(405, f"{path} does not take {method}", hint=f"it takes {headers['Allow']}", headers=headers)
    if error.status_code == 404:
        return Problem(404, f"there is nothing at {path}", headers=headers)
    if error.status_code == 400:  # all that it raises itself: neither text nor numbers could be made of a body
        return Problem(400, "the body cannot be read as JSON", hint="send JSON in UTF-8 that is not nested so deep")
    return Problem(error.status_code, str(error.detail), headers=headers)


def _methods(app: FastAPI, path: str) -> Sequence[str]:
    """Return the methods that the document has for a path; none for the page's own files, which can only be read."""
    paths: Mapping[str, Mapping[str, object]] = app.openapi()["paths"]
    takes = {one.upper() for known, methods in paths.items() if compile_path(known)[0].match(path) for one in methods}
    takes |= {"HEAD"} if "GET" in takes else set()
    return sorted(takes)


def known_parameters(request: Request) -> None:
    """Refuse parameters of a query that its route does not have: one that is misspelt would change nothing, unseen.

    Raises:
        Problem: 422, with the nearest one and all that there are.
    """
    if not request.url.query:
        return
    known = _names(request.scope["route"])
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        faults = [{"where": f"query.{one[:80]}", "message": "no such parameter"} for one in unknown[:20]]
        hint = _nearest(unknown[0], known, "this route takes no parameters")
        raise Problem(422, f"{faults[0]['where']}: no such parameter", hint=hint, more={"errors": faults})


def _nearest(name: str, known: Sequence[str], none: str) -> str:
    near = difflib.get_close_matches(name[:80], known, n=1)
    listed = f"known: {', '.join(known)}" if known else none
    return f"did you mean {near[0]}? {listed}" if near else listed


def _names(route: APIRoute) -> tuple[str, ...]:
    """Return the parameters that a route's query may have."""
    found: list[str] = []
    for field in route.dependant.query_params:
        kind = field.field_info.annotation
        is_form = isinstance(kind, type) and issubclass(kind, BaseModel)
        found += list(kind.model_fields) if is_form else [field.alias]  # type: ignore[union-attr]
    return tuple(found)


def _invalid(request: Request, error: RequestValidationError) -> Problem:
    found = error.errors()[:20]
    faults = [{"where": ".".join(map(str, one["loc"])), "message": _message(one)} for one in found]
    first = faults[0] if faults else {"where": "request", "message": "cannot be read"}
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    hint = "GET /openapi.json has every parameter with its range"
    if found and tuple(found[0]["loc"]) == ("body",):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
            return Problem(
                415, f"expected a body of JSON, found {kind[:80]}", hint="send Content-Type: application/json"
            )
        hint = "send one JSON object, with Content-Type: application/json; GET /openapi.json has its members"
    if found and found[0]["type"] == "extra_forbidden" and found[0]["loc"][0] == "body":
        hint = _nearest(str(found[0]["loc"][-1]), _members(request, len(found[0]["loc"])), hint)
    detail = f"{first['where']}: {first['message']}{more}"
    return Problem(422, detail, hint=hint, more={"errors": faults})


def _message(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "no such member"
    if fault["type"] == "json_invalid":
        return f"no JSON: {fault.get('ctx', {}).get('error', 'cannot be read')}"
    said = str(fault["msg"]).removeprefix("Value error, ")
    return said if said[:2].isupper() else f"{said[:1].lower()}{said[1:]}"


def _members(request: Request, depth: int) -> tuple[str, ...]:
    """Return the members that a body may have; of what lies deeper nothing is said."""
    field = getattr(request.scope.get("route"), "body_field", None)
    kind = None if field is None else field.field_info.annotation
    return tuple(kind.model_fields) if depth == 2 and isinstance(kind, type) and issubclass(kind, BaseModel) else ()
