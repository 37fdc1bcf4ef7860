"""``kb target``: list and show targets; the commands that make one stand in files of their own."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli import target_new, target_trace
from kb.cli.output import Json, RootOption, say, table, write, write_json


def target_names(incomplete: str) -> list[str]:
    """Return ids of targets that start as typed; none where there is no knowledge base."""
    from kb.config import find_root
    from kb.errors import KbError
    from kb.service.targets import target_ids

    try:
        return [one for one in target_ids(find_root(None)) if one.startswith(incomplete)]
    except KbError:
        return []


def show_all(root: RootOption = None, json: Json = False) -> None:
    """List the targets: model, devices, precision, how many operator rows, and where shares of time come from."""
    from kb.config import find_root
    from kb.service.targets import list_targets

    found = list_targets(find_root(root))
    if json:
        write_json([asdict(one) for one in found])
        return
    rows = [
        (one.id, one.model, f"{one.device_count} x {', '.join(one.devices)}", str(one.rows), one.shares)
        for one in found
    ]
    table(("id", "model", "devices", "rows", "shares"), rows)
    if not found:
        say("no target is filed; kb target new CONFIG.json makes one")


def show(
    name: Annotated[
        str, typer.Argument(metavar="TARGET", help="Its id, or the end of it.", autocompletion=target_names)
    ],
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show one target: traffic, goals, and the operator rows by their share of time."""
    from kb.config import find_root
    from kb.service.targets import find_target, shape_of

    entry_id, target = find_target(find_root(root), name)
    if json:
        write_json({"id": entry_id, **target.model_dump(mode="json")})
        return
    write(f"{entry_id}\n{target.model}, {target.precision}")
    write(f"devices: {target.device_count} x {', '.join(target.devices)}")
    for one in target.traffic:
        write(f"traffic: {one.name}: {one.summary or one.phase}; {shape_of(one)}")
    for goal in target.goals:
        gain = f" by {goal.gain_percent:g} % against {goal.against}" if goal.gain_percent else ""
        write(f"goal: {goal.metric}, {goal.better} is better{gain}")
    write(f"accuracy: {target.accuracy}")
    if target.share_basis:
        write(f"shares: {target.share_basis}")
    ranked = sorted(target.operators, key=lambda row: -(row.share or 0))
    rows = []
    for row in ranked:
        axes = " ".join(f"{axis}={size}" for axis, size in row.axes.items())
        share = "" if row.share is None else f"{100 * row.share:.1f} % {row.share_from}"
        rows.append((share, row.operator, row.name, f"{row.calls_per_step or 0:g}", " ".join(row.dtypes), axes))
    table(("share", "operator", "name", "calls", "dtypes", "axes"), rows)
    for rest in target.unnamed:
        write(f"not named: {100 * rest.share:.2f} % {rest.name}")


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    group = typer.Typer(no_args_is_help=True, help="Targets: list and show them, make one from a config or a trace.")
    group.command("list")(show_all)
    group.command("show")(show)
    target_new.register(group)
    target_trace.register(group)
    app.add_typer(group, name="target")
