"""``kb validate``: judge entries and file signed records."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.judge import NOT_ACCEPTED
from kb.cli.output import Json, RootOption, say, write, write_json


def validate(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Entries; all with code if none.")] = None,
    device: Annotated[str, typer.Option(help="Where to judge: cpu or cuda:N.")] = "cpu",
    timing: Annotated[bool | None, typer.Option(help="Take times too; if not said, on a GPU only.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Judge entries and file what came out: one signed, chained record each. Nothing is lost if it is stopped."""
    from kb.config import find_root
    from kb.service.validating import validate as judged

    done = []
    where = find_root(root)
    for one in judged(
        where, ids or [], device=device, timing=timing, progress=lambda entry: say(f"judging {entry}"), waiting=say
    ):
        done.append(one)
        if not json:
            outcome = one.verdict or "not judged"
            write(f"{one.id}@{one.version}: {outcome}" + (f" ({', '.join(one.reasons)})" if one.reasons else ""))
            if one.note:
                write(f"  {one.note}")
    if json:
        write_json([asdict(one) for one in done])
    counts = {
        verdict: sum(one.verdict == verdict for one in done) for verdict in ("accepted", "rejected", "needs_review")
    }
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f", {len(done)} looked at")
    if any(one.verdict not in ("accepted", None) for one in done):
        raise typer.Exit(NOT_ACCEPTED)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("validate")(validate)
