"""``kb mcp``: the endpoint for coding agents."""

from typing import Annotated

import typer

from kb.cli.output import RootOption, say


def mcp(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer nothing that writes: no submit, no outcome.")
    ] = False,
    branch: Annotated[str, typer.Option(metavar="NAME", help="Branch that submissions are committed to.")] = (
        "submissions"
    ),
    bare: Annotated[
        bool, typer.Option("--bare", help="Search by words alone, also where embeddings are installed.")
    ] = False,
    root: RootOption = None,
) -> None:
    """Serve a coding agent over stdin and stdout (Model Context Protocol)."""
    from kb.server.stdio import serve

    serve(root, bare=bare, read_only=read_only, branch=branch, say=lambda words: say(f"kb: {words}"))


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("mcp")(mcp)
