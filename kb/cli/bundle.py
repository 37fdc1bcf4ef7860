"""``kb bundle``: make one file that judges entries on a machine that has nothing but torch."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, write, write_json


def bundle(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Entries; all with code if none.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write it.")] = Path(
        "job.pyz"
    ),
    device_kind: Annotated[str, typer.Option(help="What it is for: cuda or cpu.")] = "cuda",
    kind: Annotated[str | None, typer.Option(help="Only entries of this kind: kernel, allocation or comm.")] = None,
    workloads: Annotated[
        str | None, typer.Option(help="awkward, target or both, with a comma; else what is usual on the device.")
    ] = None,
    timing: Annotated[bool, typer.Option(help="Take times too.")] = False,
    quick: Annotated[
        bool, typer.Option(help="With --timing: judge and time one shape of a target an entry, cold, no second run.")
    ] = False,
    shapes: Annotated[
        int, typer.Option(min=1, help="With --quick: this many shapes of a target; from two on an awkward one too.")
    ] = 1,
    regimes: Annotated[
        str | None, typer.Option(help="Times in cold/eager, cold/graph, warm/eager, warm/graph; else the usual ones.")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, help="How long its evidence is accepted.")] = 14.0,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Pack entries, the judge and a one-time key into one file: copy it, run it with python, accept what it wrote.

    It needs Python 3.10, numpy and torch. It holds a key: keep it as private as a password until it is accepted.
    """
    from kb.config import find_root
    from kb.service.bundling import bundle as made

    uses = None if workloads is None else [one.strip() for one in workloads.split(",")]
    pairs = None if regimes is None else regimes.split(",")
    if quick and not timing:
        raise typer.BadParameter("--quick says how times are taken: give --timing too")
    if shapes > 1 and not quick:
        raise typer.BadParameter("--shapes says how many a quick timing takes: give --quick too; else all are timed")
    found = made(
        find_root(root), ids or [], output, device_kind=device_kind, kind=kind, uses=uses, timing=timing, quick=quick,
        shapes=shapes, regimes=pairs, days=days,
    )  # fmt: skip
    if json:
        write_json(asdict(found))
        return
    for one in found.left_out:
        say(f"left out: {one.id}: {one.why}")
    write(f"{found.file}: {len(found.entries)} entries, {found.size_bytes:,} bytes, job {found.job}")
    say(f"next: copy it to the machine, python {output.name} -o evidence.json, and here kb accept evidence.json")
    say(f"its evidence is accepted until {found.expires_utc[:10]}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("bundle")(bundle)
