"""``kb index``: bring the catalogue up to date by hand."""

from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, progress, say, write, write_json


def index(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make it anew in any case.")] = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Bring the catalogue up to date. A search does it by itself; nothing is lost if it is deleted."""
    from kb.config import find_root
    from kb.service.indexing import left_out, update

    with progress("indexing") as show:
        done = update(find_root(root), rebuild=rebuild, progress=show)
    problems = left_out(done.file)
    if json:
        rows = [{"where": one.where, "message": one.message} for one in problems]
        write_json({"catalogue": str(done.file), "updated": done.report is not None, "left_out": rows})
        return
    write(f"{done.file}: {'up to date already' if done.report is None else 'brought up to date'}")
    for problem in problems:
        say(f"left out: {problem.message}")
    if problems:
        say("hint: kb check")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("index")(index)
