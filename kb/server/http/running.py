"""Run the server: refuse what would be unsafe, say where it listens, end without cutting anybody off."""

import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import uvicorn
from starlette.types import ASGIApp

from kb.config import Root
from kb.errors import ConfigError
from kb.server.http.access import Access
from kb.server.http.app import make_app
from kb.server.http.guard import Guard
from kb.server.http.protocol import bounded
from kb.server.http.settings import Settings, is_loopback
from kb.server.http.state import State
from kb.service.tokens import Token, all_tokens
from kb.store.branches import check_name

_GRACE_S = 10


class _Server(uvicorn.Server):
    """Ends as asked: being told to is no failure, so the signal is not raised again once everything is closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        kept = {sign: signal.signal(sign, self.handle_exit) for sign in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sign, handler in kept.items():
                signal.signal(sign, handler)


class Service:
    """A server that is bound to its address and not running yet."""

    def __init__(self, root: Root, settings: Settings, *, say: Callable[[str], None] | None = None) -> None:
        """Bind.

        Args:
            root: The knowledge base.
            settings: How the server is set up.
            say: As for :class:`kb.server.http.state.State`.

        Raises:
            ConfigError: The address cannot be listened on, or is public and there are no tokens; or the branch for
                submissions has a name that is none.
        """
        check_bind(settings)
        check_name(root.path, settings.branch)
        self.settings = settings
        self.state = State(root, settings, say=say)
        self._bound = _bind(settings)
        host, port = self._bound.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._server = _Server(_config(guarded(self.state), settings))

    def run(self) -> None:
        """Serve until told to stop; what runs is finished first, for ten seconds at most."""
        try:
            self._server.run(sockets=[self._bound])
        finally:
            self._bound.close()

    def stop(self) -> None:
        """Let :meth:`run` end, from any thread."""
        self._server.should_exit = True


def run(root: Root, settings: Settings, *, say: Callable[[str], None]) -> None:
    """Serve until the process is told to end (SIGINT, SIGTERM).

    Args:
        root: The knowledge base.
        settings: How the server is set up.
        say: Told in one line where the server listens, and later what takes long, such as embedding.

    Raises:
        ConfigError: The address cannot be listened on, or is public and there are no tokens.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    service = Service(root, settings, say=lambda words: say(f"kb: {words}"))
    mode = "read-only" if settings.read_only else _tokens_said(all_tokens())
    # What is loaded stays; looking through it again and again took a tenth of a search's time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    say(f"kb serves {root.path} at {service.url} ({mode}); MCP at /mcp; Ctrl-C ends it")
    service.run()


def _tokens_said(tokens: Sequence[Token]) -> str:
    """Say what the tokens allow: one that has run out allows nothing."""
    now = datetime.now(UTC)
    valid = sum(one.is_valid(now) for one in tokens)
    over = len(tokens) - valid
    said = f"{valid} token{'' if valid == 1 else 's'}" if valid else "read-only"
    return f"{said}, {over} more ran out: kb token list" if over else said


def guarded(state: State) -> ASGIApp:
    """Return the whole application: routes behind their guard.

    Args:
        state: What routes share.
    """
    access = Access(state.settings, state.tokens)
    return Guard(make_app(state), access, state.metrics, state.settings.limits)


def check_bind(settings: Settings) -> None:
    """Refuse to listen where anybody could ask without a token.

    Raises:
        ConfigError: The address is not this machine's own and there are no tokens, or they cannot be read.
    """
    now = datetime.now(UTC)
    if not is_loopback(settings.host) and not any(one.is_valid(now) for one in all_tokens()):
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and there are no tokens",
            hint="kb token new NAME --scope read, or leave out --host",
        )


def _bind(settings: Settings) -> socket.socket:
    try:
        families = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name may stand for IPv4 and IPv6; the first one is what everything else on this machine would take.
        family, kind, protocol, _, address = families[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable(settings, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(min(1024, settings.limits.connections))
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _unusable(settings, error) from error
    return bound


def _unusable(settings: Settings, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"cannot listen on {settings.host}:{settings.port}: {reason}", hint="kb serve --port 0")


def _config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    limits = settings.limits
    return uvicorn.Config(
        app,
        # One parser and one loop everywhere, so that what was tested is what runs, whatever else is installed.
        http=bounded(limits),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # what a client says of its address is not believed
        timeout_keep_alive=max(1, round(limits.idle_s)),
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=limits.headers_bytes,
    )
