"""Choose what to judge again, in order of value, with a reason and an estimate for each."""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb import catalogue, evidence
from kb.config import Root, config_folder, derived_folder
from kb.errors import ConfigError, DeviceUnavailableError, EntryNotFoundError
from kb.models.facts import Standing
from kb.models.vocabulary import KINDS
from kb.service import indexing
from kb.store import runs

AUDIT_SHARE = 0.05
"""How much of what needs no new run is judged again all the same, drawn at random."""
GUESS_S = 20.0
"""What one entry is taken to need where none was ever timed, in seconds."""
QUERY_LOG = "queries.jsonl"
"""In the settings folder, if the user keeps one: JSON lines with ``hits``, a list of ids."""

_ON_CPU = frozenset({"triton", "torch", "python"})
_SQL = f"SELECT id, version, kind, operator, withdrawn, facts, cells, files FROM {catalogue.ENTRY} ORDER BY id"  # noqa: S608


@dataclass(frozen=True)
class Request:
    """What to judge again, as it was asked for."""

    ids: tuple[str, ...] = ()
    """None means all."""
    stale: bool = False
    """Only what was proven there and is stale, and the audit sample."""
    device: str = "cpu"
    """``cpu`` or ``cuda:N``."""
    kind: str | None = None
    limit: int | None = None
    """Most entries, the audit sample among them."""
    seed: int | None = None
    """Of the audit sample; drawn if None."""
    timing: bool | None = None
    """Take times too; None for on a GPU only."""


@dataclass(frozen=True)
class Item:
    """One entry to judge."""

    id: str
    version: int
    why: str
    estimate_s: float


@dataclass(frozen=True)
class Left:
    """One entry that is not judged here, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What is to be judged, in this order."""

    device: str
    name: str
    """What the device calls itself."""
    items: tuple[Item, ...]
    left: tuple[Left, ...]
    elsewhere: Mapping[str, int]
    """Device that is not this one → entries that are stale there."""
    seed: int
    timed: bool
    """False where no earlier run tells how long anything takes."""

    @property
    def estimate_s(self) -> float:
        """How long all of it takes, in seconds."""
        return sum(item.estimate_s for item in self.items)


@dataclass(frozen=True)
class _Known:
    """One entry, as the catalogue has it."""

    id: str
    version: int
    kind: str
    operator: str | None
    withdrawn: str | None
    facts: Mapping[str, Any]
    cells: Sequence[Mapping[str, Any]]
    files: Sequence[str]

    def there(self, name: str) -> list[Mapping[str, Any]]:
        return [cell for cell in self.cells if cell["device"] == name]


def device_name(device: str) -> str:
    """Return what a device calls itself, which is what records name.

    Args:
        device: ``cpu`` or ``cuda:N``.

    Raises:
        DeviceUnavailableError: There is no such device here.
    """
    if device == "cpu":
        return "cpu"
    try:
        from kb.validators.runtime.evidence import device_facts

        return str(device_facts(device)["name"])
    except (ImportError, ValueError, RuntimeError, KeyError) as error:
        hint = "kb revalidate --device cpu, or kb bundle for a machine that has one"
        raise DeviceUnavailableError(f"no device {device!r} here: {error}", hint=hint) from error


def choose(root: Root, request: Request) -> Plan:
    """Make the plan.

    Args:
        root: The knowledge base.
        request: What was asked for.

    Returns:
        Entries that are used most first, then those whose family failed there, then the longest unjudged; the audit
        sample comes last.

    Raises:
        DeviceUnavailableError: There is no such device here.
        EntryNotFoundError: An id is not in the knowledge base.
    """
    name = device_name(request.device)

    def read(connection: sqlite3.Connection) -> tuple[list[_Known], evidence.Today]:
        parsed = [_known(row) for row in connection.execute(_SQL)]
        return parsed, evidence.today_of(connection)

    if request.kind not in (None, *KINDS):
        raise ConfigError(f"no kind {request.kind!r}", hint=f"one of {', '.join(KINDS)}")
    known, today = indexing.ask(root, read)
    asked = _asked(known, request)
    left = [Left(one.id, why) for one in asked if (why := _not_here(one, request)) is not None]
    skipped = {one.id for one in left}
    able = [one for one in asked if one.id not in skipped]
    took = durations(derived_folder(root))
    seed = random.SystemRandom().randrange(1 << 32) if request.seed is None else request.seed
    chosen = _ordered(able, known, request, name=name, today=today, seed=seed)
    usual = sum(took.values()) / len(took) if took else GUESS_S
    items = tuple(Item(one.id, one.version, why, round(took.get(one.id, usual), 1)) for one, why in chosen)
    return Plan(request.device, name, items, tuple(left), _elsewhere(asked, name, today), seed, bool(took))


def _asked(known: Sequence[_Known], request: Request) -> list[_Known]:
    """Return the entries that were asked for, in the order of the catalogue; a slug that one entry has will do."""
    wanted = set()
    for name in request.ids:
        found = [one.id for one in known if one.id == name or one.id.endswith(f"/{name}")]
        if name not in found and len(found) != 1:
            said = f"{name!r} is the slug of {len(found)} entries" if found else f"no entry {name!r}"
            raise EntryNotFoundError(said, hint=f"one of {', '.join(found)}" if found else "kb list")
        wanted.add(name if name in found else found[0])
    return [one for one in known if (one.id in wanted or not request.ids) and request.kind in (None, one.kind)]


def _known(row: tuple[Any, ...]) -> _Known:
    return _Known(*row[:5], *(catalogue.stored_json(text) for text in row[5:]))


def _not_here(one: _Known, request: Request) -> str | None:
    """Say why an entry is not judged on the device, as far as its facts tell; the judge itself may find more."""
    if one.withdrawn is not None and one.id not in request.ids:
        return "withdrawn"
    if not one.facts.get("entry_point") or not one.operator:
        return "it has no code to judge"
    cannot = one.facts.get("cannot_run_on", {}).get(request.device.partition(":")[0])
    if cannot:
        return f"it cannot run there: {cannot}"
    if request.device == "cpu" and one.facts.get("language") not in _ON_CPU:
        return f"{one.facts.get('language')} does not run on a cpu"
    return None


def _ordered(
    able: Sequence[_Known],
    known: Sequence[_Known],
    request: Request,
    *,
    name: str,
    today: evidence.Today,
    seed: int,
) -> list[tuple[_Known, str]]:
    served = _served(known)
    stands = {one.id: evidence.standing(one.facts, cells=one.there(name), today=today) for one in able}
    failed = {
        one.operator
        for one in able
        if stands[one.id].freshness == "refuted" or _failed(one.there(name), stands[one.id])
    }
    due = {one.id: _why(one, stands[one.id], name=name, today=today) for one in able}
    first = [one for one in able if not request.stale or request.ids or due[one.id].startswith("stale")]
    rest = [one for one in able if one not in first and one.there(name)]
    sample = _sample(rest, request, seed)
    first.sort(key=lambda one: (-served[one.id], one.operator not in failed, _last(one, name), one.id))
    if request.limit is not None:
        first = first[: max(0, request.limit - len(sample))]
    chosen = []
    for one in first:
        used = f"used {served[one.id]} times; " if served[one.id] else ""
        family = "; one of its operator failed" if one.operator in failed else ""
        chosen.append((one, f"{used}{due[one.id]}{family}"))
    return chosen + [(one, f"audit sample; {due[one.id]}") for one in sample]


def _failed(cells: Sequence[Mapping[str, Any]], stands: Standing) -> bool:
    return stands.freshness != "fresh" and any(cell["state"] == "refuted" for cell in cells)


def _sample(rest: Sequence[_Known], request: Request, seed: int) -> list[_Known]:
    """Draw the audit sample: one at least, so that what is never due is looked at some day."""
    if not rest or request.ids:
        return []
    size = max(1, round(AUDIT_SHARE * len(rest)))
    if request.limit is not None:
        size = min(size, max(1, round(AUDIT_SHARE * request.limit)))
    # Chance here has to be repeatable from the stated seed, not unpredictable.
    return random.Random(seed).sample(list(rest), min(size, len(rest)))  # noqa: S311


def _last(one: _Known, name: str) -> str:
    """Return when an entry was last judged there; an empty text, which sorts first, if never."""
    return max((str(cell["when"]) for cell in one.there(name)), default="")


def _why(one: _Known, stands: Standing, *, name: str, today: evidence.Today) -> str:
    cells = one.there(name)
    if not cells:
        return f"never judged on {name}"
    for cell, how, reasons in evidence.live(cells, today):
        if how == "stale" and (cell["same_code"] or stands.freshness == "stale"):
            return f"stale: {reasons[0]}"
    said = f": {stands.reasons[0]}" if stands.reasons else ""
    return f"{stands.freshness}{said}; judged last on {_last(one, name)[:10]}"


def _served(known: Sequence[_Known]) -> Counter[str]:
    """Count how often each entry was used, as told by outcomes, and found, as told by the user's own query log."""
    counted: Counter[str] = Counter()
    for one in known:
        counted[one.id] += sum(name.startswith("outcomes/") for name in one.files)
    log = Path(config_folder()) / QUERY_LOG
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return counted
    for line in lines:
        try:
            hits = json.loads(line)["hits"]
        except (ValueError, KeyError, TypeError):
            continue
        counted.update(hit for hit in (hits if isinstance(hits, list) else ()) if isinstance(hit, str))
    return counted


def _elsewhere(asked: Sequence[_Known], name: str, today: evidence.Today) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for one in asked:
        devices = {
            str(cell["device"])
            for cell, how, _ in evidence.live(one.cells, today)
            if cell["device"] != name and how == "stale"
        }
        counted.update(devices)
    return dict(sorted(counted.items()))


def durations(folder: Path) -> dict[str, float]:
    """Return how long each entry took in earlier runs, in seconds; the newest counts.

    Args:
        folder: Folder of derived files.
    """
    found: dict[str, float] = {}
    for run in runs.all_runs(folder):
        for line in run.lines:
            seconds = line.get("seconds")
            if "done" in line and line.get("verdict") is not None and isinstance(seconds, int | float):
                found.setdefault(str(line["done"]), float(seconds))
    return found
