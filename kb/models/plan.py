"""What a new target gets from the store: a plan; and what came of using an entry. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from kb.values import Frozen, plain

USES = ("commercial", "research")
"""What an entry is to be used for; a license may forbid the first."""

RESULTS = ("won", "neutral", "lost", "not_applied")
"""What came of using an entry on a target."""

ROLES = ("run", "tune", "port", "technique")
"""What there is to do with an entry: run its code as it is, choose its parameters anew, write its code anew for the
device, or carry over its idea."""


class Reported(Frozen):
    """What was reported about an entry so far, counted."""

    won: int = 0
    neutral: int = 0
    lost: int = 0
    not_applied: int = 0

    @property
    def tried(self) -> int:
        """Reports by somebody who did use it."""
        return self.won + self.neutral + self.lost


class PlanRow(Frozen):
    """One entry offered for one operator row of the target, or for the whole step."""

    rank: int
    """Place in the order of work, from 1."""
    id: str
    version: int
    title: str
    kind: str
    """Of the entry: ``kernel``, ``allocation``, ``comm``, ``config``, ``technique``, ``combination``, ``campaign``."""
    role: str
    """One of ``ROLES``."""
    row: str | None
    """Name of the operator row; None for what concerns the whole step."""
    operator: str | None
    """The row's operator, or that of the entry."""
    transfer: str
    """One of ``vocabulary.TRANSFER``, at the row's sizes on the target's device."""
    reasons: tuple[str, ...]
    """Why this class."""
    share: float | None
    """Share of the step's time of all rows that the entry serves from here on, 0..1; None if nobody stated one."""
    share_from: str | None
    """``measured`` or ``estimated``."""
    evidence: str
    """Level on the target's device, or the best elsewhere: ``evidence_device`` says where."""
    freshness: str
    evidence_device: str | None
    gain: float | None
    """Predicted speed-up of the row over its baseline on the target's device; None if nothing allows a prediction."""
    gain_low: float | None
    """Ends of the 90 % interval of ``gain``."""
    gain_high: float | None
    gain_from: str | None
    """``measured`` (there), ``predicted`` (from measurements elsewhere), or None: unknown."""
    confidence: float
    """0..1: evidence, freshness, transfer, and what was reported of earlier uses."""
    saving: float | None
    """Expected part of the step's time that is saved: share x (1 - 1/gain) x confidence; None if any is unknown."""
    priority: float
    """What the order follows: ``saving``, or where that is unknown an assumption that is no figure of merit."""
    license: str
    restrictions: tuple[str, ...] = ()
    reported: Reported = Reported()
    also: tuple[str, ...] = ()
    """Further operator rows that the same entry serves."""
    latency_us: float | None = None
    """Predicted for one call on the target's device; None if it is not predictable."""
    floor_us: float | None = None
    """What the device's peaks allow at best for one call; None if unknown."""
    summary: str = ""
    notes: tuple[str, ...] = ()

    @property
    def runnable(self) -> bool:
        """True if the entry's own code runs on the target's device at the row's sizes."""
        return self.role in ("run", "tune")


class Gap(Frozen):
    """An operator row for which the store has nothing that runs."""

    row: str
    operator: str
    axes: Mapping[str, int]
    dtypes: tuple[str, ...]
    share: float | None
    reasons: tuple[str, ...]
    """Why nothing runs: no entry at all, or what each lacks."""
    nearest: str | None
    """Id of the entry to start from: one to port, else a technique; None if the store has neither."""
    nearest_transfer: str | None = None


class Warning_(Frozen):  # noqa: N801 - Warning is a builtin
    """A negative result, or another danger, that concerns the target."""

    id: str
    title: str
    rows: tuple[str, ...]
    """Operator rows that it concerns; empty for the whole step."""
    condition: str
    """When it holds, in the source's words."""
    effect: str
    holds: str
    """``yes`` if its condition can be checked against the target and is met, else ``check``."""


class Excluded(Frozen):
    """An entry that is not offered, with the reason."""

    id: str
    because: str
    """``license``, ``conflict``, ``devices`` (too few), ``refuted``, ``slower``, ``alternative`` (to others)."""
    reason: str


class Coverage(Frozen):
    """How one operator row of the target is served."""

    row: str
    operator: str
    share: float | None
    share_from: str | None
    calls_per_step: float | None
    runnable: tuple[str, ...]
    """Ids whose code runs there, best first."""
    offered: tuple[str, ...]
    """All ids offered for it, best first."""


class Plan(Frozen):
    """What the store offers a target, most valuable first."""

    target: str
    """Id of the target entry."""
    version: int
    title: str
    model: str
    device: str
    """The device that was planned for, with its family's members if there are several."""
    device_count: int
    precision: str
    use: str
    """One of ``USES``."""
    store: str
    """sha256 over all entries, their records and outcomes that were read; the same store gives the same plan."""
    rows: tuple[PlanRow, ...]
    """In the order of work."""
    gaps: tuple[Gap, ...]
    warnings: tuple[Warning_, ...]
    excluded: tuple[Excluded, ...]
    coverage: tuple[Coverage, ...]
    """One for each operator row of the target, in its order."""
    notes: tuple[str, ...] = ()
    """What the reader has to know: missing shares, a family instead of a device, missing measurements."""
    budget_tokens: int = 8000
    brief: str = ""
    """Text of ``SEED.md``: the brief for a coding agent, within the budget."""
    written: tuple[str, ...] = ()
    """Files written, relative to the folder; empty if nothing was."""

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain JSON values, without the brief."""
        return {name: plain(value) for name, value in self.__dict__.items() if name not in ("brief", "written")}


class Outcome(Frozen):
    """What happened when somebody used an entry on a target."""

    entry: str
    version: int
    digest: str
    """Of the entry version that was used."""
    target: str
    target_digest: str
    result: str
    """One of ``RESULTS``."""
    record: str | None
    """Path below ``entries/`` of the judge's record that bears it out; always there for ``won``."""
    record_sha256: str | None
    speedup: float | None
    """Of the record's measured timings against their baselines (geometric mean); None if nothing was timed."""
    device: str | None
    """Of the record."""
    note: str | None
    date: str
    """UTC, ``2026-01-31``: when it was first reported."""
    path: str
    """Of the file, below ``entries/``."""
    new: bool = True
    """False if the same was reported before."""

    def to_json(self) -> dict[str, object]:
        """Return the outcome as plain JSON values."""
        return {name: plain(value) for name, value in self.__dict__.items()}
