"""``kb revalidate``: judge entries again, in order of value; taken up where it was cut off."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli import revalidate_output as output
from kb.cli.interrupting import interrupts
from kb.cli.judge import NOT_ACCEPTED
from kb.cli.output import Json, RootOption, progress, say, write_json

if TYPE_CHECKING:
    from kb.service.revalidating import Revalidation

_INTERRUPTED = 130


def revalidate(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Entries; all if none.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what is stale there, and an audit sample.")] = False,
    device: Annotated[str, typer.Option(help="Where to judge: cpu or cuda:N.")] = "cpu",
    kind: Annotated[str | None, typer.Option(help="Only entries of this kind.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be judged, why, and for how long.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Most entries to judge.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the audit sample; drawn if not given.")] = None,
    timing: Annotated[bool | None, typer.Option(help="Take times too; if not said, on a GPU only.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Begin anew, also where a run was cut off.")] = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Judge entries again and file signed records. A run that was cut off is taken up by the same call."""
    from kb.config import find_root
    from kb.service import choosing, revalidating

    base = find_root(root)
    request = choosing.Request(tuple(ids or ()), stale, device, kind, limit, seed, timing)
    if plan:
        output.plan(choosing.choose(base, request), json=json)
        return
    run = revalidating.begin(base, request, anew=new)
    output.head(run)
    try:
        _judge(run, json=json)
    except KeyboardInterrupt:
        say(f"interrupted: {len(run.done)} of {len(run.plan.items)} done; the same call goes on from there")
        raise typer.Exit(_INTERRUPTED) from None
    if json:
        write_json({"run": run.run.id, "seed": run.plan.seed, "elsewhere": run.plan.elsewhere} | output.results(run))
    output.tail(run)
    if any(one.verdict not in ("accepted", None) for one in run.done):
        raise typer.Exit(NOT_ACCEPTED)


def _judge(run: "Revalidation", *, json: bool) -> None:
    with interrupts() as look, progress("judging") as show:

        def shown(done: int, total: int, entry: str) -> None:
            show(done, total)
            say(f"judging {entry} ({done + 1} of {total})")

        for one in run.go(shown):
            if not json:
                output.result(asdict(one))
            look()


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("revalidate")(revalidate)
