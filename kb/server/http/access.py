"""Who asks, and whether they may: Host and Origin, tokens and scopes, how often."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from kb.errors import ConfigError
from kb.server.http.limiting import Buckets
from kb.server.http.problems import Problem
from kb.server.http.settings import LOOPBACK_NAMES, Settings
from kb.service.tokens import Token, Tokens

Headers = Sequence[tuple[bytes, bytes]]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_DATA = ("/v1", "/mcp", "/metrics", "/openapi.json")
_ANYBODY = frozenset({"/healthz"})
_ASK = "whoever runs the server makes a token"
_FOREIGN = "kb serve --allow-host NAME, for a page that may ask"


@dataclass(frozen=True)
class Caller:
    """Who sent a request."""

    address: str
    """For rates: an IPv4 address, or the /64 network of an IPv6 one."""
    token: Token | None
    scopes: frozenset[str]
    """What this client may do here."""

    @property
    def name(self) -> str | None:
        """Name of the token."""
        return None if self.token is None else self.token.name

    @property
    def key(self) -> str:
        """What its rates are counted by."""
        return f"address {self.address}" if self.token is None else f"token {self.token.id}"

    def require(self, scope: str) -> None:
        """Refuse what this client may not do.

        Raises:
            Problem: 403, with what is missing.
        """
        if scope not in self.scopes:
            raise _lacking(scope)


def address_of(client: tuple[str, int] | None) -> str:
    """Return what an address is counted by: whoever has one IPv6 address mostly has 2^64 of them."""
    try:
        address = ipaddress.ip_address(client[0] if client else "")
    except ValueError:
        return "unknown"
    if address.version == 6 and not address.is_loopback:
        return str(ipaddress.ip_network(f"{address}/64", strict=False))
    return str(address)


class Access:
    """Decides on every request before anything else sees it."""

    def __init__(self, settings: Settings, tokens: Tokens) -> None:
        """Keep what decides.

        Args:
            settings: How the server is set up.
            tokens: Who may do what.
        """
        self._settings = settings
        self._tokens = tokens
        self._names = _names(settings)
        limits = settings.limits
        self._rates = Buckets(limits.rate, limits.burst)
        self._failures = Buckets(limits.failures / 60, limits.failures)

    def check_origin(self, headers: Headers, path: str) -> None:
        """Refuse requests that a foreign web page made a browser send, also by rebinding its name to this address.

        Raises:
            Problem: 400, 403 or 421.
        """
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            hint = "send the name of this server in one Host header"
            raise Problem(400, f"expected one Host header, found {len(hosts)}", hint=hint)
        if hosts[0] not in self._names and _without_port(hosts[0]) not in self._names:
            raise Problem(
                421,
                f"this server is not called {hosts[0][:100]!r}",
                hint="kb serve --allow-host NAME, for every name that clients call it by",
            )
        listed = {name.lower() for name in self._settings.allow_hosts}
        for name, value in headers:
            if name == b"origin":
                scheme, _, place = value.decode("latin-1").lower().partition("://")
                if scheme not in ("http", "https") or place not in {hosts[0], *listed}:
                    raise Problem(403, "requests from other web pages are refused", hint=_FOREIGN)
            elif name == b"sec-fetch-site" and value not in (b"same-origin", b"none") and is_data(path):
                raise Problem(403, "requests from other web pages are refused", hint=_FOREIGN)

    def identify(self, headers: Headers, client: tuple[str, int] | None) -> Caller:
        """Say who asks.

        Raises:
            Problem: 401 for a token that is none, 429 after too many of those.
        """
        address = address_of(client)
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            return Caller(address, None, frozenset({"read"}) if self._settings.is_loopback else frozenset())
        scheme, _, text = given[0].decode("latin-1").partition(" ")
        try:
            token = self._tokens.match(text.strip()) if len(given) == 1 and scheme.lower() == "bearer" else None
        except ConfigError as error:
            # Where tokens cannot be read nobody has one; why is nothing for clients.
            raise Problem(503, "tokens cannot be read", hint="kb token list") from error
        if token is None:
            # Looked at last: who has a token is not locked out by others behind the same address.
            wait = self._failures.wait_of(address)
            if wait:
                hint = f"wait {wait} s, and send a token that is one"
                raise Problem(429, "too many tokens that are none", hint=hint, headers={"Retry-After": str(wait)})
            self._failures.take(address)
            raise Problem(
                401,
                "the token is not known, was revoked, or has run out",
                hint=f"{_ASK} (kb token list shows which have run out)",
                headers={"WWW-Authenticate": 'Bearer realm="kernel-kb", error="invalid_token"'},
            )
        allowed = {"read"} if self._settings.read_only else set(token.scopes)
        return Caller(address, token, frozenset(allowed))

    def check_rate(self, caller: Caller) -> None:
        """Refuse who asks too often.

        Raises:
            Problem: 429, with the time to wait.
        """
        wait = self._rates.take(caller.key)
        if wait:
            hint = f"at most {self._settings.limits.rate:g} requests a second"
            raise Problem(429, "too many requests", hint=hint, headers={"Retry-After": str(wait)})

    def check_scope(self, caller: Caller, method: str, path: str) -> None:
        """Refuse what this client may not do; what no rule names needs ``write``.

        Raises:
            Problem: 401 or 403, with the next step.
        """
        scope = scope_for(method, path)
        if scope is None or scope in caller.scopes:
            return
        if scope != "read" and self._settings.read_only:
            raise Problem(403, "this server is read-only", hint="whoever runs the server leaves out --read-only")
        if caller.token is not None:
            raise _lacking(scope)
        if scope != "read" and not self._has_tokens():
            hint = f"{_ASK} (kb token new NAME --scope {scope})"
            raise Problem(403, "this server has no tokens, so it is read-only", hint=hint)
        raise Problem(
            401,
            f"this needs a token with the scope {scope}",
            hint=f"send Authorization: Bearer TOKEN; {_ASK} (kb token new NAME --scope {scope})",
            headers={"WWW-Authenticate": 'Bearer realm="kernel-kb"'},
        )

    def _has_tokens(self) -> bool:
        try:
            return bool(self._tokens.known())
        except ConfigError:
            return True


def is_data(path: str) -> bool:
    """Tell whether a path is of what the knowledge base says, not of the page's own files."""
    return any(path == top or path.startswith(f"{top}/") for top in _DATA)


def scope_for(method: str, path: str) -> str | None:
    """Return the scope that a request needs; None for what anybody may see: the page's own files, and liveness."""
    if path in _ANYBODY or (method in _SAFE and not is_data(path)):
        return None
    if path == "/v1/judgements" or path.startswith("/v1/judgements/"):
        return "judge"
    if path == "/v1/submissions" or path.startswith("/v1/submissions/"):
        return "write"
    if method in _SAFE or path == "/mcp" or path.startswith("/mcp/"):
        return "read"  # tools that write check the caller's scopes themselves
    return "write"


def _lacking(scope: str) -> Problem:
    challenge = f'Bearer realm="kernel-kb", error="insufficient_scope", scope="{scope}"'
    hint = f"{_ASK} that has it (kb token new NAME --scope {scope})"
    return Problem(
        403, f"the token does not have the scope {scope}", hint=hint, headers={"WWW-Authenticate": challenge}
    )


def _names(settings: Settings) -> frozenset[str]:
    """Return the names that this server answers to, in lower case, without ports unless one was asked for."""
    names = {name.lower() for name in settings.allow_hosts}
    names |= {name if ":" not in name else f"[{name}]" for name in LOOPBACK_NAMES}
    if settings.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        names.add(f"[{settings.host}]" if ":" in settings.host else settings.host.lower())
    return frozenset(names)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and (name.startswith("[") == name.endswith("]")) else host
