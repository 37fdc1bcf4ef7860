"""``kb outcome``: say what came of using an entry."""

from typing import Annotated

import typer

from kb.cli.completing import entry_ids, results, target_ids
from kb.cli.output import Json, RootOption, write, write_json


def outcome(
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help="The entry that was used.", autocompletion=entry_ids)],
    target: Annotated[str, typer.Option(metavar="TARGET", help="What it was used on.", autocompletion=target_ids)],
    result: Annotated[str, typer.Option(help="won, neutral, lost or not_applied.", autocompletion=results)],
    record: Annotated[str | None, typer.Option(metavar="PATH", help="A record by the judge; needed for won.")] = None,
    note: Annotated[str | None, typer.Option(help="One line.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Store what came of using an entry on a target; later plans learn from it. A win needs a record by the judge."""
    from kb.config import find_root
    from kb.service.outcomes import report_outcome

    made = report_outcome(find_root(root), entry, target=target, result=result, record=record, note=note)
    if json:
        write_json(made.to_json())
        return
    gain = f", {made.speedup:.3g} times as fast as its baseline on {made.device}" if made.speedup is not None else ""
    write(f"{made.entry}@{made.version} on {made.target}: {made.result}{gain}")
    write(f"  entries/{made.path}" + ("" if made.new else " (reported before; nothing new was written)"))


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("outcome")(outcome)
