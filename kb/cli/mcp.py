"""``kb mcp``: the endpoint for coding agents."""

from typing import Annotated

import typer

from kb.cli.output import RootOption


def mcp(
    bare: Annotated[
        bool, typer.Option("--bare", help="Search by words alone, also where embeddings are installed.")
    ] = False,
    root: RootOption = None,
) -> None:
    """Serve search and get to a coding agent, over stdin and stdout (Model Context Protocol)."""
    from kb.server.stdio import serve

    serve(root, bare=bare)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("mcp")(mcp)
