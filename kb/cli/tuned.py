"""``kb tuned``: config entries out of the launch parameters that records hold."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.completing import devices, entry_ids
from kb.cli.output import Json, RootOption, say, table, write_json


def tuned(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Kernels; all if none.", autocompletion=entry_ids)
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="D", help="Only records of this device.", autocompletion=devices)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="File the entries; without it nothing is changed.")] = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Make config entries of the parameters with which measured kernels were launched. Nothing without --write."""
    from kb.config import find_root
    from kb.service.tuning import tuned as made

    found = made(find_root(root), ids or [], device=device, write=write)
    if json:
        write_json([asdict(one) for one in found])
        return
    if found:
        head = ("state", "config", "rows", "device", "triton")
        table(head, [(one.state, one.reason or one.id, str(one.rows), one.device, one.triton) for one in found])
    changed = sum(one.state in ("add", "update") for one in found)
    said = f"{changed} {'filed' if write else 'to file (--write)'}, {len(found) - changed} not"
    say(said if found else "no record holds the launch parameters of a measured workload")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("tuned")(tuned)
