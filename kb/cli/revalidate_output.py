"""What ``kb revalidate`` prints: its plan, its results, and what it could not do."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kb.cli.output import say, table, write, write_json

if TYPE_CHECKING:
    from kb.service.choosing import Plan
    from kb.service.revalidating import Group, Revalidation

_NAMED = 3


def duration(seconds: float) -> str:
    """Write a time as a person would: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan(found: "Plan", *, json: bool) -> None:
    """Print a plan."""
    from kb.service.revalidating import grouped

    left = grouped(found.left)
    if json:
        write_json(asdict(found) | {"estimate_s": found.estimate_s, "left": [asdict(group) for group in left]})
        return
    rows = [(f"{item.id}@{item.version}", item.why, duration(item.estimate_s)) for item in found.items]
    table(("entry", "why", "about"), rows)
    basis = "from earlier runs" if found.timed else "a guess: no earlier run tells"
    write(f"{len(found.items)} entries on {found.name}, about {duration(found.estimate_s)} ({basis})")
    write(f"seed of the audit sample: {found.seed}")
    _left(left, found.elsewhere)


def head(run: "Revalidation") -> None:
    """Say what is about to be done."""
    done = len(run.done)
    if run.resumed:
        say(f"run {run.run.id} was cut off: {done} of {len(run.plan.items)} done, going on; --new begins anew")
    else:
        estimate = duration(run.plan.estimate_s)
        what = f"{len(run.plan.items)} entries on {run.plan.name}"
        say(f"run {run.run.id}: {what}, about {estimate}; seed of the audit sample {run.plan.seed}")


def result(one: Mapping[str, Any]) -> None:
    """Print what came of one entry."""
    reasons = f" ({', '.join(one['reasons'])})" if one["reasons"] else ""
    write(f"{one['id']}@{one['version']}: {one['verdict'] or 'not judged'}{reasons}, {duration(one['seconds'])}")
    if one["note"]:
        write(f"  {one['note']}")


def results(run: "Revalidation") -> dict[str, Any]:
    """Return results and what could not be done, as plain JSON values."""
    return {"results": [asdict(one) for one in run.done], "could_not": [asdict(one) for one in run.could_not()]}


def tail(run: "Revalidation") -> None:
    """Say what came of all of it, and what could not be done."""
    verdicts = ("accepted", "rejected", "needs_review")
    counts = [f"{sum(one.verdict == verdict for one in run.done)} {verdict}" for verdict in verdicts]
    say(f"{', '.join(counts)}, {len(run.done)} looked at on {run.plan.name}")
    _left(run.could_not(), run.plan.elsewhere)


def _left(groups: "Sequence[Group]", elsewhere: Mapping[str, int]) -> None:
    for group in groups:
        more = "" if len(group.ids) <= _NAMED else f" and {len(group.ids) - _NAMED} more"
        say(f"could not do {len(group.ids)}: {group.why}: {', '.join(group.ids[:_NAMED])}{more}")
    for device, count in elsewhere.items():
        say(f"stale on {device}, which is not this device: {count}; kb bundle takes them there")
