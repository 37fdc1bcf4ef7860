"""HTTP/1.1 with patience that ends: uvicorn waits for ever for headers, and for clients that read nothing."""

import asyncio
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kb.server.http.guard import sealed
from kb.server.http.problems import NO_HTTP, Problem, response
from kb.server.http.settings import Limits


class Bounded(H11Protocol):
    """Hangs up on who sends no whole request in time, or reads no answer; refuses as everything else here refuses."""

    limits: Limits
    """How long it waits."""
    _hurry: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for headers from the start."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.app = _full
        self._hurry = self.loop.call_later(self.limits.headers_s, self._hang_up)

    def data_received(self, data: bytes) -> None:
        """Wait no longer once a request's headers are there; wait anew where another request begins."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            _stop(self._hurry)
            self._hurry = None
        elif self._hurry is None and not self.transport.is_closing():
            self._hurry = self.loop.call_later(self.limits.headers_s, self._hang_up)

    def on_response_complete(self) -> None:
        """What was waited for is there; from here the keep-alive timer runs."""
        _stop(self._hurry)
        self._hurry = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.reading_s, self._hang_up)

    def resume_writing(self) -> None:
        """The client reads again."""
        _stop(self._unread)
        self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        _stop(self._hurry)
        _stop(self._unread)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the form of all refusals; where an answer has begun already, only hang up.

        Args:
            msg: What uvicorn says of it.
        """
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            made = response(Problem(400, "this is no HTTP request that can be read", hint=NO_HTTP))
            start = sealed({"type": "http.response.start", "headers": made.raw_headers})
            headers = [*start["headers"], (b"connection", b"close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(made.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _hang_up(self) -> None:
        transport: Any = self.transport
        if not transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer who came when there were as many connections as there may be; those who were there are served."""

    async def out(message: Any) -> None:  # noqa: ANN401 - of the ASGI specification
        await send(sealed(message) if message["type"] == "http.response.start" else message)

    headers = {"Retry-After": "1", "Connection": "close"}
    fault = Problem(503, "too many connections at one time", hint="ask again, over fewer connections", headers=headers)
    await response(fault)(scope, receive, out)


def bounded(limits: Limits) -> type[Bounded]:
    """Return a protocol that waits no longer than it is told.

    Args:
        limits: How long it waits.
    """
    return type("Bounded", (Bounded,), {"limits": limits})


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
