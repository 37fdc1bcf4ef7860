"""What a search returns; frozen values, standard library only."""

from collections.abc import Mapping

from kb.values import Frozen, plain


class Best(Frozen):
    """The best figure known for an entry."""

    metric: str
    value: float
    unit: str
    device: str | None
    baseline: str | None
    speedup: float | None
    """Baseline time over candidate time; None if nothing was compared."""
    workload: str
    roofline: float | None
    """Floor over measured time, 0..1; None if not measured by our judge."""
    source: str | None = None
    """Who published it; None if our own judge measured it."""
    regime: str | None = None
    """``cold, eager`` and the like, of a measured time."""
    interval: tuple[float, ...] | None = None
    """Ends of the interval of ``speedup``; None if it was not measured by our judge."""
    stale: str | None = None
    """Why a measured figure may not hold any more; None if it is fresh or published."""


class Hit(Frozen):
    """One entry that answers a query."""

    id: str
    version: int
    title: str
    kind: str
    operator: str | None
    outcome: str
    score: float
    transfer: str | None
    """Class on the asked device; None if no device was asked for."""
    evidence: str
    freshness: str
    best: Best | None
    why: tuple[str, ...]
    license: str
    evidence_device: str | None = None
    summary: str = ""
    restrictions: tuple[str, ...] = ()


class Answer(Frozen):
    """All that a search says."""

    query: str
    facets: Mapping[str, tuple[str, ...]]
    """Facet name to canonical values read from the query."""
    scope: Mapping[str, object]
    """The hard filters that were applied."""
    hits: tuple[Hit, ...]
    empty_because: str | None
    took_ms: float
    expansions: tuple[str, ...] = ()
    """Every synonym that was added: ``fp4 → nvfp4``."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the answer as plain JSON values."""
        return {name: plain(value) for name, value in self.__dict__.items()}
