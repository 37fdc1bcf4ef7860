"""``kb verify``: check all records."""

from dataclasses import asdict

import typer

from kb.cli.output import Json, RootOption, say, write, write_json
from kb.errors import EntryFormatError


def verify(root: RootOption = None, json: Json = False) -> None:
    """Check form, signatures, chains and verdicts of all records."""
    from kb.config import find_root
    from kb.service.verifying import verify as checked

    found = checked(find_root(root))
    if json:
        write_json(asdict(found))
    for fault in () if json else found.faults:
        write(f"{fault.path}: {fault.message}")
    say(f"{found.records} records, {len(found.faults)} faults")
    if found.not_recomputed:
        say(f"{found.not_recomputed} plans cannot be drawn again here: entry, operator or toolchain have changed")
    if found.faults:
        raise typer.Exit(EntryFormatError.exit_code)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("verify")(verify)
