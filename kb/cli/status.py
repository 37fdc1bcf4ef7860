"""``kb status``: the matrix of entries and devices."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, table, write_json

_DEFAULT = ["H100", "H200", "B200", "RTX 5090", "MI300X", "cpu"]


def status(
    device: Annotated[
        list[str] | None, typer.Option("--device", metavar="NAME", help="A device or family; may be repeated.")
    ] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show how every entry reaches every device, and what is proven there."""
    from kb.config import find_root
    from kb.service.status import status as matrix

    found = matrix(find_root(root), device or _DEFAULT)
    if json:
        write_json(asdict(found))
        return
    rows = [
        (
            f"{row.id}@{row.version}" + (" (withdrawn)" if row.withdrawn else ""),
            row.outcome,
            *(f"{cell.transfer} {cell.evidence}" for cell in row.cells),
        )
        for row in found.rows
    ]
    table(("entry", "outcome", *found.devices), rows)
    say("a cell: transfer class, then evidence there; " + f"{len(found.rows)} entries")
    for line in found.left_out:
        say(f"left out: {line}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("status")(status)
