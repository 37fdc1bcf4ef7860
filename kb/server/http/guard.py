"""What stands before the application: it decides who may ask, reads bodies within limits, and seals every answer."""

import asyncio
import logging
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.server.http import problems
from kb.server.http.access import Access
from kb.server.http.measuring import Metrics
from kb.server.http.problems import Problem
from kb.server.http.settings import Limits

logger = logging.getLogger(__name__)

_MOST_TEXT = 2_000

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the web page may load: nothing but what this server serves. No text can become markup: browsers that know
trusted types refuse it, because there are none."""

SEALS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CSP.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"vary", b"Authorization"),
)
"""What every answer carries, whoever gives it."""


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, limits: Limits) -> None:
        """Keep the parts.

        Args:
            app: What is guarded.
            access: Who may ask.
            metrics: Where requests are counted.
            limits: How much is taken.
        """
        self._app = app
        self._access = access
        self._metrics = metrics
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; see the ASGI specification."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answer = _Answer(send, scope["path"])
        began = time.perf_counter()
        inner: Scope = {**scope, "method": "GET" if scope["method"] == "HEAD" else scope["method"]}
        try:
            await self._admit(inner)
            inner_receive = await self._buffered(inner, receive)
        except Problem as problem:
            self._metrics.refused(problem.status)
            await problems.response(problem)(inner, receive, answer)
            return
        try:
            await self._app(inner, inner_receive, answer)
        except Exception:  # the boundary: whatever a route forgot ends here, and the client gets no traceback
            logger.exception("%r %r failed", scope["method"], scope["path"])  # paths are whatever clients send
            if answer.status is None:
                fault = Problem(500, "the server made a mistake", hint="whoever runs the server finds more in its log")
                await problems.response(fault)(inner, receive, answer)
        finally:
            seconds = time.perf_counter() - began
            self._metrics.answered(scope["method"], _route_of(inner), answer.status or 499, seconds)

    async def _admit(self, scope: Scope) -> None:
        headers = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if size + len(scope.get("raw_path", b"")) + len(scope["query_string"]) > self._limits.headers_bytes:
            message = f"path, query and headers have at most {self._limits.headers_bytes:,} bytes"
            raise Problem(431, message, hint="ask for less in one request")
        self._access.check_origin(headers, scope["path"])
        if scope["path"] == "/healthz":
            return
        caller = self._access.identify(headers, scope.get("client"))
        self._access.check_rate(caller)
        self._access.check_scope(caller, scope["method"], scope["path"])
        state: MutableMapping[str, Any] = dict(scope.get("state") or {})
        scope["state"] = {**state, "caller": caller}

    async def _buffered(self, scope: Scope, receive: Receive) -> Receive:
        """Read a body to its end before the application runs, so that nobody can keep that waiting."""
        names = {name for name, _ in scope["headers"]}
        if b"content-length" not in names and b"transfer-encoding" not in names:
            return receive
        most = self._limits.body_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or len(length) > 15 or int(length) > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the client hung up", hint="send the whole body")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise _too_large(most)
        except TimeoutError as error:
            hint = f"a whole body has to arrive within {self._limits.body_s:g} s"
            raise Problem(408, "the body did not arrive in time", hint=hint, headers={"Connection": "close"}) from error
        return _replayed(bytes(body), receive)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def _too_large(most: int) -> Problem:
    hint = "send less in one request"
    return Problem(413, f"a body has at most {most:,} bytes", hint=hint, headers={"Connection": "close"})


def _route_of(scope: Scope) -> str:
    """Return the pattern of the route that answered; what clients make up would be a label without end."""
    pattern = getattr(scope.get("route"), "path", None)
    if isinstance(pattern, str) and pattern:
        return pattern
    return "/mcp" if scope["path"].startswith("/mcp") else "other"


class _Answer:
    """Passes an answer on, sealed, and remembers its status; a refusal in plain text becomes a problem document."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._path = path
        self._plain: Message | None = None
        self._text = b""
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status >= 400 and _is_plain(message):
                self._plain = message
                return
            await self._send(sealed(message))
        elif self._plain is None:
            await self._send(message)
        else:
            self._text += message.get("body", b"")[:_MOST_TEXT]
            if not message.get("more_body", False):
                await self._reworded(self._plain)

    async def _reworded(self, start: Message) -> None:
        """Say in our form what libraries below say in plain text."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start.get("headers", ())}
        made = problems.plainly(start["status"], self._text.decode("utf-8", "replace"), self._path, headers)
        await self._send(
            sealed({"type": "http.response.start", "status": made.status_code, "headers": made.raw_headers})
        )
        await self._send({"type": "http.response.body", "body": made.body})


def sealed(message: Message) -> Message:
    """Return the start of an answer with what every answer carries."""
    headers = list(message.get("headers", ()))
    there = {name.lower() for name, _ in headers}
    return {**message, "headers": [*headers, *(one for one in SEALS if one[0] not in there)]}


def _is_plain(message: Message) -> bool:
    """Tell whether an answer is text without form, or has no body at all."""
    kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
    return not kinds or kinds[0].startswith(b"text/plain")
