"""How often somebody may ask: token buckets in memory, one a client."""

import math
import time
from collections import OrderedDict

MOST_CLIENTS = 10_000
"""Clients that are remembered; beyond that the one that asked longest ago is forgotten."""


class Buckets:
    """One bucket a client: it holds ``burst`` drops, loses one a request, and fills at ``rate`` a second."""

    def __init__(self, rate: float, burst: int) -> None:
        """Start with full buckets.

        Args:
            rate: Requests a second, on average; 0 for no limit.
            burst: Requests that may come at once.
        """
        self._rate = rate
        self._burst = float(burst)
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, *, now: float | None = None) -> int:
        """Let a client ask once.

        Args:
            client: Its token or address.
            now: Seconds, monotonic; the clock if None.

        Returns:
            0, or after how many seconds it may ask again.
        """
        if self._rate <= 0:
            return 0
        now = time.monotonic() if now is None else now
        drops = self._drops(client, now)
        wait = 0 if drops >= 1 else max(1, math.ceil((1 - drops) / self._rate))
        self._held[client] = (drops if wait else drops - 1, now)
        self._held.move_to_end(client)
        if len(self._held) > MOST_CLIENTS:
            self._held.popitem(last=False)
        return wait

    def wait_of(self, client: str, *, now: float | None = None) -> int:
        """Return after how many seconds a client may ask, without asking.

        Args:
            client: Its token or address.
            now: Seconds, monotonic; the clock if None.
        """
        if self._rate <= 0:
            return 0
        drops = self._drops(client, time.monotonic() if now is None else now)
        return 0 if drops >= 1 else max(1, math.ceil((1 - drops) / self._rate))

    def _drops(self, client: str, now: float) -> float:
        drops, when = self._held.get(client, (self._burst, now))
        return min(self._burst, drops + max(0.0, now - when) * self._rate)
