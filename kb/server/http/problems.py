"""Errors as RFC 9457 problem documents: what was wanted, what was found, and the next step."""

import http
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kb import errors
from kb.errors import KbError
from kb.plain import neutral

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


def document(status: int, detail: str, *, hint: str | None = None, **more: object) -> dict[str, Any]:
    """Return a problem document.

    Args:
        status: HTTP status.
        detail: What was wanted and what was found; control characters are replaced, and it is cut to 2,000.
        hint: The next step.
        more: Further members.
    """
    found: dict[str, Any] = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": neutral(detail)[:_LONGEST],
    }
    if hint:
        found["hint"] = neutral(hint)[:_LONGEST]
    return found | more


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


def install(app: FastAPI) -> None:
    """Make an application answer every error as a problem document."""

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class alone
        return response(error)

    async def ours(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, KbError)  # noqa: S101
        return response(of_error(error))

    async def framework(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101
        return response(Problem(error.status_code, str(error.detail), headers=error.headers))

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        return response(_invalid(error))

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(KbError, ours)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, invalid)


def _invalid(error: RequestValidationError) -> Problem:
    faults = [{"where": ".".join(map(str, one["loc"])), "message": str(one["msg"])} for one in error.errors()[:20]]
    first = faults[0] if faults else {"where": "request", "message": "cannot be read"}
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    detail = f"{first['where']}: {first['message'][:1].lower()}{first['message'][1:]}{more}"
    return Problem(422, detail, hint="GET /openapi.json has every parameter with its range", more={"errors": faults})
