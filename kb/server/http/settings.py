"""How the server is set up: where it listens, whom it answers, how much it takes."""

import ipaddress
from dataclasses import dataclass

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Limits:
    """What one server takes from its clients."""

    body_bytes: int = 2 << 20
    """Largest request body, also of one that is sent in chunks."""
    headers_bytes: int = 32 << 10
    """Longest path, query and headers together."""
    body_s: float = 30.0
    """Longest time for a request's body to arrive, seconds."""
    headers_s: float = 10.0
    """Longest time from the first byte of a request, or from the connection, to the end of its headers, seconds."""
    idle_s: float = 15.0
    """How long a connection is kept between requests, seconds."""
    reading_s: float = 30.0
    """How long a client may read nothing of a response that waits for it, seconds."""
    connections: int = 512
    """Connections at one time."""
    rate: float = 500.0
    """Requests a second of one token or address, on average; 0 for no limit."""
    burst: int = 1_000
    """Requests that may come at once."""
    failures: int = 20
    """Bad tokens a minute of one address, after which it gets 429 for the rest of it."""
    queued: int = 16
    """Judgements that wait at one time."""
    queued_each: int = 4
    """Judgements of one token that wait or run at one time."""
    judging_s: float = 900.0
    """Longest time of one judgement, seconds."""
    judges: int = 1
    """Judgements that run at one time."""


@dataclass(frozen=True)
class Settings:
    """How one server is set up."""

    host: str = "127.0.0.1"
    port: int = 8642
    read_only: bool = False
    """Offer nothing that writes or judges, whatever tokens there are."""
    allow_hosts: tuple[str, ...] = ()
    """Further names by which clients may call this server, as in their Host header; with or without a port."""
    semantic: bool = True
    """Search by meaning too, where embeddings are installed."""
    limits: Limits = Limits()
    branch: str = "submissions"
    """Where submissions are committed."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Tell whether an address or name is this machine's own; a name other than ``localhost`` is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
