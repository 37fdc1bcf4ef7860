"""``kb accept``: check, sign and file what a bundle wrote."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.judge import NOT_ACCEPTED
from kb.cli.output import Json, RootOption, say, write, write_json


def accept(
    files: Annotated[list[Path], typer.Argument(metavar="EVIDENCE…", help="Files that a bundle wrote.")],
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Check the evidence of a bundle, sign it and file it. Nothing edited is filed, and nothing is filed twice."""
    from kb.config import find_root
    from kb.service.accepting import accept as accepted

    done = []
    for one in accepted(find_root(root), files):
        done.append(one)
        if not json:
            reasons = f" ({', '.join(one.reasons)})" if one.reasons else ""
            write(f"{one.id}@{one.version} on {one.device}: {one.verdict}{reasons}")
            if one.note:
                write(f"  {one.note}")
    if json:
        write_json([asdict(one) for one in done])
    filed = sum(one.record is not None and one.note != "accepted before" for one in done)
    say(f"{filed} records filed, {len(done) - filed} not; kb verify checks them, kb index takes them up")
    if any(one.verdict != "accepted" for one in done):
        raise typer.Exit(NOT_ACCEPTED)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("accept")(accept)
