"""``kb status``: the matrix of entries and devices."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, fits, say, table, write, write_json
from kb.plain import terminal_width

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
    head = ("entry", "outcome", *found.devices)
    if fits((head, *rows)):
        table(head, rows)
    else:
        for row in rows:
            write(f"{row[0]}  {row[1]}")
            for line in _by_cell(row[2:], found.devices):
                write(line)
    say("a cell: transfer class, then evidence there; " + f"{len(found.rows)} entries")
    for line in found.left_out:
        say(f"left out: {line}")


def _by_cell(cells: Sequence[str], devices: Sequence[str]) -> Iterator[str]:
    """Yield lines that name a cell and then the devices that have it, for a terminal too narrow for the matrix."""
    names: dict[str, list[str]] = {}
    for cell, device in zip(cells, devices, strict=True):
        names.setdefault(cell, []).append(device)
    for cell, having in names.items():
        yield from textwrap.wrap(
            f"{cell}: {', '.join(having)}", terminal_width(), initial_indent="    ", subsequent_indent="        "
        )


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("status")(status)
