"""Seed a new target: what the store knows that helps there, how sure it is, and what is missing."""

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kb import evidence
from kb.catalogue import ENTRY, ENTRY_COLUMNS, decoded
from kb.config import Root
from kb.errors import ConfigError, EntryNotFoundError, IndexStaleError
from kb.models.documents import Goal, Target, Traffic
from kb.models.plan import USES, Plan
from kb.models.vocabulary import UNJUDGED_OPERATORS
from kb.planning import make_plan, reading
from kb.planning.brief import SMALLEST, brief_of
from kb.planning.values import Tally
from kb.retrieval import browse
from kb.service import forecasts, outcomes, seed_pack
from kb.service.indexing import ask
from kb.service.targets import find_target
from kb.validators.operators import names as operators

LARGEST = 1_000_000
"""Largest budget of a brief, in tokens."""


def seed_target(
    root: Root,
    target: str,
    *,
    budget_tokens: int = 8000,
    device: str | None = None,
    write_to: Path | None = None,
    use: str = "commercial",
) -> Plan:
    """Plan the work on a target from what the store holds.

    Args:
        root: The knowledge base.
        target: Id of a target entry, or a slug that only one entry has.
        budget_tokens: Most tokens of the brief, 500 to 1,000,000.
        device: Plan for this device or family instead of the target's own.
        write_to: Folder for the seed pack; made if it is missing. None writes nothing.
        use: ``commercial`` or ``research``; entries whose license forbids it are left out, and named.

    Returns:
        The plan, with the text of the brief. The same store and target give the same plan, byte for byte.

    Raises:
        ConfigError: The entry is no target; the folder holds foreign files; the budget or the use is none.
        DeviceUnavailableError: The device is not known.
        EntryFormatError: The target's file breaks the format.
        EntryNotFoundError: There is no such entry.
        StoreError: The pack cannot be written.
    """
    _check(budget_tokens, use)

    def read(connection: sqlite3.Connection) -> tuple[dict[str, Any], list[dict[str, Any]], evidence.Today]:
        return browse.raw(connection, target), everything(connection), evidence.today_of(connection)

    try:
        row, rows, today = ask(root, read)
    except EntryNotFoundError:
        # A target that is there and broken is in no catalogue; what is wrong with it says more than that it is missing.
        with suppress(EntryNotFoundError):
            find_target(root, target)
        raise
    found, ignored = outcomes.read_all(root, rows)
    digests = {one["id"]: one["digest"] for one in rows}
    counted = outcomes.tallies(found, target=row["id"], digests=digests)
    entries = [reading.known_of(one, today, counted.get(one["id"], Tally())) for one in rows]
    wish = reading.wish_of(row, entries, device=device, use=use, today=today, store=reading.store_digest(rows))
    stated = Target.model_validate(row["facts"]["target"])
    expected, notes = forecasts.forecasts_of(root, entries, wish, stated)
    outside = (f"an outcome counts for nothing: {one}" for one in ignored)
    wish = wish.with_(notes=(*wish.notes, *_unknown(stated), *notes, *outside))
    plan = make_plan(entries, wish, today=today, forecasts=expected).with_(budget_tokens=budget_tokens)
    brief, named = brief_of(
        plan,
        goals=[_goal(one) for one in stated.goals],
        traffic=[_traffic(one) for one in stated.traffic],
        accuracy=stated.accuracy,
    )
    plan = plan.with_(brief=brief)
    return plan if write_to is None else plan.with_(written=seed_pack.write(root, plan, named, write_to))


def _check(budget_tokens: int, use: str) -> None:
    if use not in USES:
        raise ConfigError(f"no use is called {use!r}", hint=f"one of {', '.join(USES)}")
    if not SMALLEST <= budget_tokens <= LARGEST:
        raise ConfigError(f"expected a budget of {SMALLEST:,} to {LARGEST:,} tokens, found {budget_tokens:,}")


def _unknown(target: Target) -> list[str]:
    """Say which rows of a target nothing can ever answer, since nobody knows their operator."""
    found = []
    for name in dict.fromkeys(row.operator for row in target.operators):
        if name not in operators.NAMES and name not in UNJUDGED_OPERATORS:
            near = get_close_matches(name, operators.NAMES, n=1)
            meant = f"did you mean {near[0]}?" if near else "kb operators lists those that are known"
            found.append(f"no operator is called {name!r}, so no entry can answer its rows: {meant}")
    return found


def everything(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return all entries by id, with all columns.

    Args:
        connection: An up-to-date catalogue.

    Raises:
        IndexStaleError: The catalogue cannot be read.
    """
    columns = ", ".join(ENTRY_COLUMNS)
    try:
        rows = connection.execute(f"SELECT {columns} FROM {ENTRY} ORDER BY id").fetchall()  # noqa: S608
    except sqlite3.Error as error:
        raise IndexStaleError(f"the catalogue cannot be read: {error}", hint="kb index --rebuild") from error
    return [decoded(ENTRY_COLUMNS, row) for row in rows]


def _goal(goal: Goal) -> str:
    words = [f"{goal.metric}, {goal.better} is better"]
    if goal.value is not None:
        words.append(f"reach {goal.value:g}")
    if goal.gain_percent is not None:
        words.append(f"by {goal.gain_percent:g} %")
    if goal.against is not None:
        words.append(f"against {goal.against}")
    return ", ".join(words) + (f" (under {goal.traffic})" if goal.traffic else "")


def _traffic(traffic: Traffic) -> str:
    figures: Mapping[str, int | None] = {
        "batch": traffic.batch_size,
        "input tokens": traffic.input_tokens,
        "output tokens": traffic.output_tokens,
        "context": traffic.context_len,
        "concurrency": traffic.concurrency,
    }
    said = ", ".join(f"{name} {value}" for name, value in figures.items() if value is not None)
    return f"{traffic.name} ({traffic.phase}): {said}" + (f"; {traffic.summary}" if traffic.summary else "")
