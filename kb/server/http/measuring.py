"""What the server counts of itself, for Prometheus."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kb import __version__

_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

MEDIA_TYPE = CONTENT_TYPE_LATEST
"""Of the text form."""


class Metrics:
    """The figures of one server; two servers in one process do not share any."""

    def __init__(self) -> None:
        """Start at zero."""
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kb_http_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "kb_http_request_seconds",
            "Time from a request's headers to the end of its answer, by route.",
            ("route",),
            buckets=_BOUNDS,
            registry=self.registry,
        )
        self._refused = Counter(
            "kb_http_refused",
            "Requests refused before any route saw them, by status.",
            ("status",),
            registry=self.registry,
        )
        self._judged = Counter("kb_judgements", "Judgements that ended, by how.", ("ending",), registry=self.registry)
        Gauge("kb_info", "The version that runs.", ("version",), registry=self.registry).labels(__version__).set(1)

    def watch(self, read: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Show values that are read when somebody asks.

        Args:
            read: Name to meaning and reader.
        """
        for name, (meaning, value) in read.items():
            Gauge(name, meaning, registry=self.registry).set_function(value)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request.

        Args:
            method: Of the request; unknown ones count as ``other``.
            route: The route's pattern, never a path that a client made up.
            status: Of the answer.
            seconds: From the request's headers to the end of its answer.
        """
        known = method if method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, status: int) -> None:
        """Count one request that was refused before any route saw it."""
        self._refused.labels(str(status)).inc()

    def judged(self, ending: str) -> None:
        """Count one judgement that ended: a verdict, ``cancelled``, ``timed_out`` or ``failed``."""
        self._judged.labels(ending).inc()

    def text(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self.registry)
