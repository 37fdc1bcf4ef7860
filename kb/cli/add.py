"""``kb add``: file an entry."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, write, write_json


def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with entry.toml, README.md and code.")],
    entry_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="kernel/OPERATOR/SLUG; else the last three parts of DIR.")
    ] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Add an entry, or a new version of one. All or nothing, also when the machine stops half-way."""
    from kb.config import find_root
    from kb.service.adding import add as file_entry

    added = file_entry(folder, entry_id, find_root(root))
    if json:
        write_json(asdict(added))
        return
    write(f"{added.reference}: {added.state}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("add")(add)
