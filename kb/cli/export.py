"""``kb export``: write entries in the format of another project."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, write, write_json


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="A format that can be written: flashinfer-trace.")],
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Entries; all that fit if none.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="A new folder.")] = Path("export"),
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Write entries in the format of another project, into a new folder."""
    from kb.config import find_root
    from kb.service.exporting import export as exported

    made = exported(find_root(root), form, ids or [], output)
    if json:
        write_json(asdict(made))
        return
    for one in made.left_out:
        say(f"left out: {one.path}: {one.reason}")
    write(f"{made.folder}: {len(made.files)} files")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("export")(export)
