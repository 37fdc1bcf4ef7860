"""``kb seed``: what the store knows that helps a new target."""

from pathlib import Path
from typing import Annotated

import typer

from kb.cli.completing import devices, target_ids, uses
from kb.cli.output import Json, RootOption, say, write_json
from kb.cli.seed_output import show


def seed(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Id of a target: kb list --kind target.", autocompletion=target_ids),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the seed pack there.")
    ] = None,
    budget: Annotated[int, typer.Option(metavar="TOKENS", help="Most tokens of SEED.md.")] = 8000,
    device: Annotated[
        str | None, typer.Option(help="Plan for this device or family instead.", autocompletion=devices)
    ] = None,
    use: Annotated[
        str, typer.Option(help="commercial or research: licenses may forbid the first.", autocompletion=uses)
    ] = "commercial",
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Plan the work on a target: entries by expected saving, what is missing, what to beware of."""
    from kb.config import find_root
    from kb.service.seeding import seed_target

    plan = seed_target(find_root(root), target, budget_tokens=budget, device=device, write_to=output, use=use)
    if json:
        write_json(plan.to_json())
    else:
        show(plan)
    if output is not None:
        say(f"{len(plan.written)} files in {output}; give SEED.md to the agent")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("seed")(seed)
