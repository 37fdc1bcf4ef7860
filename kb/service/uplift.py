"""How often entries helped or harmed those who used them, and by how much."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from kb.config import Root
from kb.errors import EntryNotFoundError
from kb.service import outcomes
from kb.service.indexing import ask
from kb.service.seeding import everything
from kb.service.targets import whole_id
from kb.store.outcomes import FiledOutcome
from kb.units import geometric_mean

_Z = 1.959964
"""Of a two-sided interval of 95 %."""


@dataclass(frozen=True)
class Group:
    """Outcomes of all entries, or of one kind."""

    name: str
    reported: int
    tried: int
    """Without ``not_applied``."""
    won: int
    neutral: int
    lost: int
    harm_rate: float | None
    """Lost over tried; None if nothing was tried."""
    harm_low: float | None
    """Ends of Wilson's 95 % interval."""
    harm_high: float | None
    measured: int
    """Tried, with a record that has times."""
    gain: float | None
    """Geometric mean of the speed-ups of those, wins and losses alike; None if there are none."""

    def cells(self) -> list[str]:
        """Return the group as cells of a table."""
        harm = "-" if self.harm_rate is None else f"{self.harm_rate:.0%} [{self.harm_low:.0%}, {self.harm_high:.0%}]"
        gain = "-" if self.gain is None else f"{self.gain:.3g}x over {self.measured}"
        counts = (self.reported, self.tried, self.won, self.neutral, self.lost)
        return [self.name, *map(str, counts), harm, gain]


@dataclass(frozen=True)
class Uplift:
    """All that outcomes say."""

    groups: tuple[Group, ...]
    """All of them first, then by kind; empty if nothing was reported."""
    ignored: tuple[str, ...]
    """Files that count for nothing, and why."""

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {"groups": [asdict(one) for one in self.groups], "ignored": list(self.ignored)}


def uplift_of(root: Root, *, target: str | None = None) -> Uplift:
    """Read every outcome of a knowledge base.

    Args:
        root: The knowledge base.
        target: Only those on this target, by id.

    Raises:
        EntryNotFoundError: There is no such target.
    """
    rows = ask(root, everything)
    target = target if target is None else whole_id(root, target)
    if target is not None and not any(row["id"] == target and row["kind"] == "target" for row in rows):
        raise EntryNotFoundError(f"no target has the id {target!r}", hint="kb list --kind target")
    found, ignored = outcomes.read_all(root, rows)
    found = [one for one in found if target is None or one.file.target.id == target]
    kinds = sorted({one.entry_id.partition("/")[0] for one in found})
    groups = [group_of("all", found)] if found else []
    groups += [group_of(kind, [one for one in found if one.entry_id.startswith(f"{kind}/")]) for kind in kinds]
    return Uplift(tuple(groups), tuple(ignored))


def group_of(name: str, found: Sequence[FiledOutcome]) -> Group:
    """Count some outcomes.

    Args:
        name: What they have in common.
        found: Outcomes that count.
    """
    count = {result: sum(one.file.result == result for one in found) for result in ("won", "neutral", "lost")}
    tried = sum(count.values())
    low, high = wilson(count["lost"], tried)
    gains = _gains(found)
    return Group(
        name, len(found), tried, count["won"], count["neutral"], count["lost"],
        count["lost"] / tried if tried else None, low, high, len(gains), geometric_mean(gains),
    )  # fmt: skip


def _gains(found: Iterable[FiledOutcome]) -> list[float]:
    return [one.file.speedup for one in found if one.file.speedup is not None and one.file.result != "not_applied"]


def wilson(hits: int, tries: int) -> tuple[float | None, float | None]:
    """Return Wilson's 95 % interval of a rate; None twice where nothing was tried.

    Args:
        hits: 0 to ``tries``.
        tries: At least 0.
    """
    if tries == 0:
        return None, None
    rate, square = hits / tries, _Z * _Z
    middle = (rate + square / (2 * tries)) / (1 + square / tries)
    half = _Z * math.sqrt(rate * (1 - rate) / tries + square / (4 * tries * tries)) / (1 + square / tries)
    # At the ends of the scale rounding may leave it.
    return max(0.0, middle - half), min(1.0, middle + half)
