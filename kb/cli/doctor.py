"""``kb doctor``: look at everything that kb needs."""

from dataclasses import asdict

import typer

from kb.cli.output import Json, RootOption, write, write_json


def doctor(root: RootOption = None, json: Json = False) -> None:
    """Look at everything that kb needs, and say what to do about what is missing."""
    from kb.service.doctor import examine

    found = examine(root)
    if json:
        write_json([asdict(one) for one in found])
    for one in () if json else found:
        write(f"{one.state:8} {one.name}: {one.found}")
        if one.next_step:
            write(f"         {one.next_step}")
    if any(one.state == "problem" for one in found):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("doctor")(doctor)
