"""What a bundle prints of an entry: one line with its verdict and, where it was timed, every figure. Standard library.

The lines come once more at the end, all together, because only the end of what a machine printed may be kept.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kb.validators.runtime.stopwatch import summed

_LONGEST = 220


def printable(text: str) -> str:
    """Return a text without what a terminal would obey: a machine's words and a candidate's are in it."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def tell(text: str) -> None:
    """Say something to whoever runs the bundle: on standard error, at once."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def line(made: Mapping[str, Any], seconds: float | None = None) -> str:
    """Return what came of one entry.

    Args:
        made: Its evidence, as ``evidence_of`` makes it.
        seconds: How long it took; None to leave that out.
    """
    entry, decision = made["entry"], made["decision"]
    reasons = f" ({', '.join(decision['reasons'])})" if decision["reasons"] else ""
    took = "" if seconds is None else f", {seconds:.0f} s"
    timed = [_timing(one) for one in made["timing"] or ()]
    untimed = [] if timed else [str(note) for note in made["timing_notes"][:1]]
    first = decision["details"][:1] if decision["verdict"] != "accepted" else []
    return "; ".join(
        [f"{entry['id']}@{entry['version']}: {decision['verdict']}{reasons}{took}", *timed, *untimed, *first]
    )


def _timing(one: Mapping[str, Any]) -> str:
    """Return one regime: ``cold/graph FAST 1.320, 12.3 us, 71% of the roofline``."""
    where = f"{one['regime']['cache']}/{one['regime']['launch']}"
    ratio = "no ratio" if one["ratio"] is None else f"{one['ratio']:.3f}"
    doubt = f" QUARANTINED {one['quarantined']}" if one["quarantined"] else ""
    return f"{where} {one['verdict']}{doubt} {ratio}, {one['candidate_us']['median']:.4g} us, {one['roofline']:.0%}"


def spent(rows: Sequence[Mapping[str, Any]], alone: Sequence[tuple[float, str]], seconds: float) -> str:
    """Return what a run was spent on: seconds of each phase, all entries together and the longest, and turns alone.

    Args:
        rows: Seconds by phase, of entries or of something that no entry counts.
        alone: How long each step alone took, and whose it was.
        seconds: The whole run.
    """
    phases = [f"{name} {total:.0f} ({most:.0f})" for name, (total, most) in summed(rows).items() if total >= 0.5]
    made = f"seconds by phase (the longest): {', '.join(phases) or 'none'}"
    if alone:
        most, whose = max(alone)
        total = sum(one for one, _ in alone)
        made += f"\nalone: {len(alone)} steps, {total:.0f} of {seconds:.0f} s, the longest {most:.1f} s by {whose}"
    return made


def table(evidence: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]) -> str:
    """Return a line an entry, shortened, each ending in a line feed; what was skipped last.

    Args:
        evidence: Of all entries that were judged.
        skipped: ``id`` and ``reason`` of the others.
    """
    rows = [line(one) for one in evidence]
    rows += [f"{one['id']}: skipped: {one['reason']}" for one in skipped]
    return "".join(f"{row if len(row) <= _LONGEST else row[: _LONGEST - 3] + '...'}\n" for row in rows)
