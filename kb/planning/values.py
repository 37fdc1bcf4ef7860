"""What planning reads: entries as the catalogue has them, and the target's rows at the sizes of its traffic."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kb.hardware import DeviceScope
from kb.models.facts import EntryFacts, Transfer
from kb.models.plan import Reported
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NOTHING: Mapping[str, float] = MappingProxyType({})


class Tally(Frozen):
    """What was reported of an entry, counted and weighed for one target."""

    reported: Reported = Reported()
    won: float = 0.0
    """Sum of weights; less for another target, older code, or without a record."""
    neutral: float = 0.0
    lost: float = 0.0


class Known(Frozen):
    """One entry as planning sees it."""

    id: str
    version: int
    digest: str
    title: str
    summary: str
    outcome: str
    license: str
    operator: str | None
    operators: tuple[str, ...]
    """The operator and all of ``applies_to``."""
    facts: EntryFacts
    raw: Mapping[str, Any]
    """``entry.toml`` as plain values."""
    cells: tuple[Mapping[str, Any], ...] = ()
    withdrawn: str | None = None
    tally: Tally = Tally()

    @property
    def kind(self) -> str:
        """First part of the id."""
        return self.facts.kind

    def tokens(self, which: str) -> frozenset[str]:
        """Return its contracts: ``requires``, ``provides`` or ``conflicts``."""
        return frozenset((self.raw.get("contracts") or {}).get(which, ()))

    @property
    def phases(self) -> frozenset[str]:
        """Phases it is for; empty for any."""
        return frozenset(self.raw.get("phase", ()))

    @property
    def uses(self) -> tuple[str, ...]:
        """Of a combination: the ids of its parts."""
        return tuple(self.raw.get("uses", ()))


class Size(Frozen):
    """One operator row under one traffic."""

    traffic: str
    weight: float
    """Share of the row's time that falls to this traffic, relative to the others."""
    axes: Mapping[str, int]
    """Axes that the row or the traffic states."""


class Wanted(Frozen):
    """One operator row of the target."""

    name: str
    operator: str
    dtypes: tuple[str, ...]
    sizes: tuple[Size, ...]
    """At least one."""
    share: float | None = None
    share_from: str | None = None
    calls_per_step: float | None = None
    phase: str | None = None
    """``prefill``, ``decode``, ``vision``, ``training``; None for any."""
    note: str | None = None


class Forecast(Frozen):
    """What is expected of an entry on one row: figures on the target's device, each None where it is not known."""

    gain: float | None = None
    low: float | None = None
    high: float | None = None
    origin: str | None = None
    """``measured`` or ``predicted``."""
    latency_us: float | None = None
    floor_us: float | None = None
    note: str | None = None


class Wish(Frozen):
    """The target, and what it is planned with."""

    id: str
    version: int
    title: str
    model: str
    precision: str
    scope: DeviceScope
    device_count: int
    rows: tuple[Wanted, ...]
    phases: frozenset[str]
    """Phases of its traffic; empty if nobody said."""
    parallelism: Mapping[str, int] = MappingProxyType({})
    toolchain: Mapping[str, str] = MappingProxyType({})
    use: str = "commercial"
    store: str = ""
    """Digest of what was read."""
    notes: tuple[str, ...] = ()


class Match(Frozen):
    """An entry on one operator row."""

    row: Wanted
    transfer: Transfer
    part: float = 1.0
    """Of the row's time, how much falls to the traffic under which this class holds."""
    notes: tuple[str, ...] = ()


class Offer(Frozen):
    """An entry, and all that it serves in the same way; no matches: it concerns the whole step."""

    entry: Known
    transfer: Transfer
    matches: tuple[Match, ...] = ()
    fit: float = 1.0
    """0..1: how well it fits beside its transfer class; less where it was made for another phase."""
    notes: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """What there is to do with it: one of ``kb.models.plan.ROLES``."""
        if self.entry.kind in ("technique", "combination"):
            return "technique"
        return {"exact": "run", "recompile": "run", "retune": "tune", "port": "port"}.get(
            self.transfer.kind, "technique"
        )
