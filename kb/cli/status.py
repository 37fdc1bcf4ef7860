"""``kb status``: the matrix of entries and devices."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli import status_target
from kb.cli.completing import target_ids
from kb.cli.output import Json, RootOption, fits, say, table, write, write_json
from kb.plain import terminal_width

if TYPE_CHECKING:
    from kb.service.status import Cell, Status

_DEFAULT = ["H100", "H200", "B200", "RTX 5090", "MI300X", "cpu"]


def status(
    device: Annotated[
        list[str] | None, typer.Option("--device", metavar="NAME", help="A device or family; may be repeated.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T", help="By operator row of a target instead; may be repeated.", autocompletion=target_ids
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="With --target: write it as a Markdown page.")
    ] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show how every entry reaches every device, what is proven there, and what is stale."""
    from kb.config import find_root

    if target or report is not None:
        status_target.show(find_root(root), target or [], device or ["H200"], report, as_json=json)
        return
    from kb.service.status import status as matrix

    found = matrix(find_root(root), device or _DEFAULT)
    if json:
        write_json(asdict(found))
        return
    rows = [
        (f"{row.id}@{row.version}" + (" (withdrawn)" if row.withdrawn else ""), row.outcome, *map(_shown, row.cells))
        for row in found.rows
    ]
    head = ("entry", "outcome", *found.devices)
    if fits((head, *rows)):
        table(head, rows)
    else:
        for line in (line for row in rows for line in (f"{row[0]}  {row[1]}", *_by_cell(row[2:], found.devices))):
            write(line)
    for line in _summary(found):
        say(line)


def _shown(cell: "Cell") -> str:
    fresh = "" if cell.freshness == "unknown" else f", {cell.freshness}"
    ratio = cell.measured["speedup"] if cell.measured is not None else None
    return f"{cell.transfer} {cell.evidence}{fresh}" + (f" {ratio:.3g}x" if ratio is not None else "")


def _summary(found: "Status") -> Iterator[str]:
    yield f"a cell: transfer class, then evidence there and how fresh it is; {len(found.rows)} entries"
    for device in found.devices:
        counts = {**found.levels[device], **found.freshness[device]}
        yield f"{device}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    for one in found.stale:
        regime = f" ({one.regime})" if one.regime else ""
        yield f"{one.freshness}: {one.id} on {one.device}{regime}, {one.level}: {'; '.join(one.reasons)}"
    yield from (f"ignored: {line}" for line in found.ignored)
    yield from (f"left out: {line}" for line in found.left_out)


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
