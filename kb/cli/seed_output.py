"""How a plan is shown at a terminal."""

from typing import TYPE_CHECKING

from kb.cli.output import table, write

if TYPE_CHECKING:
    from kb.models.plan import Plan, PlanRow

_SHOWN = 20
"""Most entries that are shown."""


def show(plan: "Plan") -> None:
    """Write a plan: the order of work, gaps, warnings, what is not offered, notes."""
    from kb.planning.brief import percent

    write(f"{plan.title} ({plan.target}@{plan.version}), planned for {plan.device}")
    table(
        ["", "entry", "for", "do", "share", "gain", "saving", "evidence"],
        [_row(row) for row in plan.rows[:_SHOWN]],
    )
    if len(plan.rows) > _SHOWN:
        write(f"… and {len(plan.rows) - _SHOWN} more: --json, or -o DIR")
    for gap in plan.gaps:
        share = f", {percent(gap.share)} of the time" if gap.share is not None else ""
        write(f"gap: {gap.row} ({gap.operator}{share}): {gap.reasons[0]}; start from {gap.nearest or 'nothing near'}")
    for one in plan.warnings:
        write(f"warning: {one.id}: {one.title}" + ("" if one.holds == "yes" else " (check whether it holds here)"))
    for barred in plan.excluded:
        if barred.because in ("license", "refuted", "slower", "conflict"):
            write(f"not offered: {barred.id}: {barred.reason}")
    for note in plan.notes:
        write(f"note: {note}")


def _row(row: "PlanRow") -> list[str]:
    from kb.planning.brief import evidence_text, gain_text, percent

    where = (row.row or "the whole step") + (f" +{len(row.also)}" if row.also else "")
    share = "?" if row.share is None else percent(row.share)
    saving = "?" if row.saving is None else f"{row.saving:.2%}"
    return [str(row.rank), row.id, where, row.role, share, gain_text(row), saving, evidence_text(row)]
