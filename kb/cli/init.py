"""``kb init``: make a new knowledge base."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, say, write, write_json


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")], json: Json = False
) -> None:
    """Make a new knowledge base in a new git repository."""
    from kb.service.initialising import init as initialise

    made = initialise(folder)
    if json:
        write_json({**asdict(made), "path": str(made.path)})
        return
    write(f"{made.path}: {'a new knowledge base' if made.state == 'made' else 'is a knowledge base already'}")
    if made.note:
        say(f"note: {made.note}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("init")(init)
