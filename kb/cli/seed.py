"""``kb seed``: what the store knows that helps a new target."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.completing import devices, target_ids, uses
from kb.cli.output import Json, RootOption, say, table, write, write_json

if TYPE_CHECKING:
    from kb.models.plan import Plan, PlanRow

_SHOWN = 20
"""Most entries that a terminal is shown."""


def seed(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Id of a target: kb list --kind target.", autocompletion=target_ids),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the seed pack there.")
    ] = None,
    budget: Annotated[int, typer.Option(metavar="TOKENS", help="Most tokens of SEED.md.")] = 8000,
    device: Annotated[
        str | None, typer.Option(help="Plan for this device or family instead.", autocompletion=devices)
    ] = None,
    use: Annotated[
        str, typer.Option(help="commercial or research: licenses may forbid the first.", autocompletion=uses)
    ] = "commercial",
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Plan the work on a target: entries by expected saving, what is missing, what to beware of."""
    from kb.config import find_root
    from kb.service.seeding import seed_target

    plan = seed_target(find_root(root), target, budget_tokens=budget, device=device, write_to=output, use=use)
    if json:
        write_json(plan.to_json())
    else:
        _show(plan)
    if output is not None:
        say(f"{len(plan.written)} files in {output}; give SEED.md to the agent")


def _show(plan: "Plan") -> None:
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
    for one in plan.excluded:
        if one.because in ("license", "refuted", "slower", "conflict"):
            write(f"not offered: {one.id}: {one.reason}")
    for note in plan.notes:
        write(f"note: {note}")


def _row(row: "PlanRow") -> list[str]:
    from kb.planning.brief import evidence_text, gain_text, percent

    where = (row.row or "the whole step") + (f" +{len(row.also)}" if row.also else "")
    share = "?" if row.share is None else percent(row.share)
    saving = "?" if row.saving is None else f"{row.saving:.2%}"
    return [str(row.rank), row.id, where, row.role, share, gain_text(row), saving, evidence_text(row)]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("seed")(seed)
