"""``kb eval uplift``: whether what the store offers helps, over the outcomes that were reported."""

from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, table, write, write_json


def uplift(
    target: Annotated[str | None, typer.Option(metavar="TARGET", help="Only outcomes on this target.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Report how often entries helped and how often they harmed, and by how much, over all reported outcomes."""
    from kb.config import find_root
    from kb.service.uplift import uplift_of

    found = uplift_of(find_root(root), target=target)
    if json:
        write_json(found.to_json())
        return
    if not found.groups:
        write("no outcomes were reported yet: kb outcome ENTRY --target TARGET --result …")
        return
    columns = ["of", "reported", "tried", "won", "neutral", "lost", "harm rate (95 %)", "gain where measured"]
    table(columns, [one.cells() for one in found.groups])
    for line in found.ignored:
        write(f"ignored: {line}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("uplift")(uplift)
