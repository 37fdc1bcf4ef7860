"""``kb diff``: compare two versions of an entry."""

from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, write, write_json


def diff(
    old: Annotated[str, typer.Argument(metavar="ID@VERSION")],
    new: Annotated[str | None, typer.Argument(metavar="[ID@VERSION]", help="The current files if left out.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show what changed between two versions of an entry."""
    from kb.config import find_root
    from kb.service.history import diff as compare

    lines = compare(find_root(root), old, new)
    if json:
        write_json(list(lines))
        return
    for line in lines:
        write(line.rstrip("\n"))


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("diff")(diff)
